"""Times equal those of croniter and cronsim where these support the grammar."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.schedule import Cron, next_after
from tests.golden.oracle import pinned_zone
from tests.support.examples import examples

# Lord Howe is left out. After its half hour repeats, cronsim misses the first half of the next
# hour.
ZONES = (
    "UTC",
    "Africa/Cairo",
    "America/New_York",
    "America/Santiago",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Australia/Adelaide",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
)
START = datetime(2009, 1, 1, tzinfo=UTC)


def items(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    # Both libraries read a range of one value as the whole field. Here it is that value.
    span = st.sets(value, min_size=2, max_size=2).map(lambda ends: "{}-{}".format(*sorted(ends)))
    length = st.integers(1, 6) | st.integers(1, 200)
    step = st.tuples(span | st.just("*"), length).map("{0[0]}/{0[1]}".format)
    return st.one_of(value.map(str), value.map(str), span, step)


def lists(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(items(low, high), min_size=1, max_size=3).map(",".join)


STAR = st.just("*")
MINUTES = lists(0, 59) | STAR | st.just("*/10")
HOURS = lists(0, 23) | STAR | st.just("2")
DAYS = STAR | lists(1, 31)
MONTHS = STAR | lists(1, 12)
WEEKDAYS = STAR | lists(0, 6) | st.sampled_from(["5#1", "5L", "0#5", "mon-fri", "SUN"])
MOMENTS = st.integers(0, 20 * 366 * 86_400).map(lambda second: START + timedelta(seconds=second))


def next_times(schedule: Cron, after: datetime, count: int) -> list[datetime]:
    times: list[datetime] = []
    at: datetime | None = after
    for _ in range(count):
        at = next_after(schedule, at) if at is not None else None
        times += [at] if at is not None else []
    return times


@settings(max_examples=examples(250), deadline=None)
@given(st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS), st.sampled_from(ZONES), MOMENTS)
def test_default_rules_equal_those_of_cronsim(
    parts: tuple[str, ...], zone: str, after: datetime
) -> None:
    """cronsim follows Debian's cron, so it agrees in every zone, also at clock changes."""
    expression = " ".join(parts)
    walk = CronSim(expression, after.astimezone(pinned_zone(zone)))
    try:
        expected = [next(walk).astimezone(UTC) for _ in range(4)]
    except StopIteration:
        return
    assert next_times(Cron(expression, timezone=zone), after, 4) == expected


@settings(max_examples=examples(150), deadline=None)
@given(
    st.tuples(MINUTES, HOURS, MONTHS),
    st.tuples(STAR, lists(0, 6)) | st.tuples(lists(1, 28), STAR),
    MOMENTS,
)
def test_croniter_agrees_in_utc_with_one_day_field(
    parts: tuple[str, str, str], days: tuple[str, str], after: datetime
) -> None:
    minute, hour, month = parts
    expression = f"{minute} {hour} {days[0]} {month} {days[1]}"
    walk = croniter(expression, after)
    expected = [walk.get_next(datetime).astimezone(ZoneInfo("UTC")) for _ in range(4)]
    assert next_times(Cron(expression), after, 4) == expected
