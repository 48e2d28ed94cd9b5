"""Measure the next time of a schedule against croniter and cronsim."""

import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from punctual.domain.schedules.cron.expression import parse_cron
from punctual.domain.schedules.schedule import Cron, Every, next_after
from punctual.domain.schedules.timezones import transitions, zone

ROUNDS = 15
CASES = (
    ("*/5 * * * *", "UTC"),
    ("0 9 * * 1-5", "America/New_York"),
    ("30 2 * * *", "Europe/Berlin"),
    ("0 0 * * *", "America/Santiago"),
    ("*/10 * * * *", "Australia/Lord_Howe"),
    ("0 12 1 * *", "Africa/Casablanca"),
    ("0 0 13 * 5", "Asia/Kathmandu"),
    ("*/15 * * * * *", "Europe/Dublin"),
    ("0 0 * * 5L", "Africa/Cairo"),
    ("0 0 LW * *", "Europe/Berlin"),
    ("0 0 29 2 *", "Pacific/Apia"),
    ("0 0 29 2 */7", "Europe/Berlin"),
    ("cron(0 0 29 2 ? 2104)", "Europe/Berlin"),
)
START_TIMES = [
    datetime(2026, month, day, hour, 17, tzinfo=UTC)
    for month in (1, 3, 6, 10)
    for day in (1, 13, 28)
    for hour in (0, 11, 23)
]


def measure(work: Callable[[datetime], object]) -> float:
    """Return the microseconds of one call, as the median of several rounds."""
    for moment in START_TIMES:
        work(moment)
    costs = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for moment in START_TIMES:
            work(moment)
        costs.append((time.perf_counter() - start) / len(START_TIMES) * 1e6)
    return statistics.median(costs)


def measure_others(expression: str, timezone: ZoneInfo) -> tuple[str, str]:
    """Return the costs of croniter and cronsim, or a dash for an unsupported expression.

    The costs include parsing.
    """

    def ask_croniter(moment: datetime) -> object:
        seconds_first = len(expression.split()) == 6
        local = moment.astimezone(timezone)
        return croniter(expression, local, second_at_beginning=seconds_first).get_next(datetime)

    def ask_cronsim(moment: datetime) -> object:
        return next(CronSim(expression, moment.astimezone(timezone)))

    costs = []
    for ask in (ask_croniter, ask_cronsim):
        try:
            costs.append(f"{measure(ask):.1f}")
        except Exception as error:  # any error that a library raises for an unknown grammar
            costs.append(f"- {type(error).__name__[:14]}")
    return costs[0], costs[1]


def measure_parse(expression: str) -> float:
    parse_cron.cache_clear()
    start = time.perf_counter()
    parse_cron(expression)
    return (time.perf_counter() - start) * 1e6


def main() -> None:
    print(f"microseconds a call, load {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    print(f"{'expression':24}{'zone':22}{'next':>7}{'parse':>8}{'croniter':>19}{'cronsim':>19}")
    for expression, name in CASES:
        schedule = Cron(expression, timezone=name)
        cost = measure(lambda moment, bound_schedule=schedule: next_after(bound_schedule, moment))  # type: ignore[misc]
        parse_cost = statistics.median(measure_parse(expression) for _ in range(ROUNDS))
        croniter_cost, cronsim_cost = measure_others(expression, zone(name))
        print(
            f"{expression:24}{name:22}{cost:7.2f}{parse_cost:8.1f}{croniter_cost:>19}{cronsim_cost:>19}"
        )
    interval = Every(300, START_TIMES[0])
    print(f"{'every 300 seconds':46}{measure(lambda instant: next_after(interval, instant)):7.2f}")
    transitions.cache_clear()
    start = time.perf_counter()
    transitions("Europe/Berlin")
    print(f"{'first use of a zone':46}{(time.perf_counter() - start) * 1e6:7.0f}")


if __name__ == "__main__":
    main()
