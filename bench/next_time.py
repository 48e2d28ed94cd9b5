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
MOMENTS = [
    datetime(2026, month, day, hour, 17, tzinfo=UTC)
    for month in (1, 3, 6, 10)
    for day in (1, 13, 28)
    for hour in (0, 11, 23)
]


def microseconds(work: Callable[[datetime], object]) -> float:
    """Return the microseconds of one call, as the median of several rounds."""
    for moment in MOMENTS:
        work(moment)
    costs = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for moment in MOMENTS:
            work(moment)
        costs.append((time.perf_counter() - start) / len(MOMENTS) * 1e6)
    return statistics.median(costs)


def others(expression: str, info: ZoneInfo) -> tuple[str, str]:
    """Return the costs of croniter and cronsim, or a dash for an unsupported expression.

    The costs include parsing.
    """

    def ask_croniter(moment: datetime) -> object:
        seconds_first = len(expression.split()) == 6
        local = moment.astimezone(info)
        return croniter(expression, local, second_at_beginning=seconds_first).get_next(datetime)

    def ask_cronsim(moment: datetime) -> object:
        return next(CronSim(expression, moment.astimezone(info)))

    shown = []
    for ask in (ask_croniter, ask_cronsim):
        try:
            shown.append(f"{microseconds(ask):.1f}")
        except Exception as error:  # any error that a library raises for an unknown grammar
            shown.append(f"- {type(error).__name__[:14]}")
    return shown[0], shown[1]


def cold(expression: str) -> float:
    parse_cron.cache_clear()
    start = time.perf_counter()
    parse_cron(expression)
    return (time.perf_counter() - start) * 1e6


def main() -> None:
    print(f"microseconds a call, load {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    print(f"{'expression':24}{'zone':22}{'next':>7}{'parse':>8}{'croniter':>19}{'cronsim':>19}")
    for expression, name in CASES:
        schedule = Cron(expression, timezone=name)
        cost = microseconds(lambda moment, s=schedule: next_after(s, moment))  # type: ignore[misc]
        parse = statistics.median(cold(expression) for _ in range(ROUNDS))
        croniter_cost, cronsim_cost = others(expression, zone(name))
        print(
            f"{expression:24}{name:22}{cost:7.2f}{parse:8.1f}{croniter_cost:>19}{cronsim_cost:>19}"
        )
    interval = Every(300, MOMENTS[0])
    print(f"{'every 300 seconds':46}{microseconds(lambda m: next_after(interval, m)):7.2f}")
    transitions.cache_clear()
    start = time.perf_counter()
    transitions("Europe/Berlin")
    print(f"{'first use of a zone':46}{(time.perf_counter() - start) * 1e6:7.0f}")


if __name__ == "__main__":
    main()
