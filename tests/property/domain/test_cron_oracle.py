"""The times of an expression equal those of a walk over every minute of a zone's wall clock."""

from datetime import UTC, datetime, timedelta
from functools import cache

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import Cron, is_occurrence, next_after, occurrences, preview
from tests.golden.oracle import Oracle, firings, pinned_zone
from tests.support.examples import examples

ZONES = (
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "America/Asuncion",
    "America/Bogota",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Singapore",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Eucla",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/London",
    "Europe/Moscow",
    "Europe/Volgograd",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Easter",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
    "Pacific/Norfolk",
)
DAY = timedelta(days=1)
MARGIN = 3 * DAY


@cache
def days_of_change(zone: str) -> list[datetime]:
    """Return the days since 1945 on which the zone's offset differs from the day before."""
    info = pinned_zone(zone)
    day, days = datetime(1945, 1, 1, tzinfo=UTC), []
    before = day.astimezone(info).utcoffset()
    while day.year < 2040:
        day += DAY
        offset = day.astimezone(info).utcoffset()
        if offset != before:
            days.append(day - DAY)
        before = offset
    return days or [datetime(2026, 3, 29, tzinfo=UTC)]


@st.composite
def zones_and_days(draw: st.DrawFn) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(ZONES))
    if draw(st.booleans()):
        return zone, draw(st.sampled_from(days_of_change(zone)))
    days = draw(st.integers(0, 90 * 365))
    return zone, datetime(1946, 1, 1, tzinfo=UTC) + days * DAY


def items(low: int, high: int, names: str = "") -> st.SearchStrategy[str]:
    value = st.integers(low, high).map(str)
    if names:
        value |= st.sampled_from(names.split())
    span = st.tuples(value, value).map("-".join)
    step = (st.integers(1, high - low + 1) | st.integers(1, 500)).map(str)
    return st.one_of(
        value, value, span, st.tuples(value | span | st.just("*"), step).map("/".join), st.just("*")
    )


def lists(item: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(item, min_size=1, max_size=3).map(",".join)


MINUTES = lists(items(0, 59)) | st.sampled_from(["0", "30", "*/10", "*", "15,45"])
HOURS = lists(items(0, 23)) | st.sampled_from(["0", "1", "2", "0-3", "23-2", "*", "*/2"])
MONTHS = st.just("*") | lists(items(1, 12, "JAN feb MAR Oct DEC"))
LAST_DAYS = st.one_of(
    st.just("L"),
    st.just("LW"),
    st.integers(0, 30).map("L-{}".format),
    st.integers(1, 31).map("{}W".format),
)
DAYS = st.one_of(st.just("*"), st.just("?"), lists(items(1, 31) | LAST_DAYS))
NTH = st.tuples(st.sampled_from(["0", "3", "7", "MON", "fri"]), st.integers(1, 5).map(str)).map(
    "#".join
)
WEEKDAYS = st.one_of(
    st.just("*"),
    st.just("?"),
    lists(items(0, 7, "SUN mon FRI Sat") | NTH | st.sampled_from(["0L", "5L", "7L", "tueL"])),
)
EXPRESSIONS = st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)
FREQUENT = st.tuples(
    MINUTES, HOURS, st.just("*"), st.just("*"), st.just("*") | lists(items(0, 7))
).map(" ".join)
AWS_WEEKDAYS = st.one_of(
    lists(items(1, 7, "SUN MON fri")),
    st.sampled_from(["L", "6L", "FRIL", "1#1", "MON#5", "7#3"]),
)
AWS_DAYS = st.one_of(
    st.tuples(DAYS.filter(lambda text: text != "?"), MONTHS, st.just("?")),
    st.tuples(st.just("?"), MONTHS, AWS_WEEKDAYS | st.just("*")),
)
AWS_EXPRESSIONS = st.tuples(
    MINUTES,
    HOURS,
    AWS_DAYS.map(" ".join),
    st.sampled_from(["*", "1970-2199/2", "2026/300", "1980-2100/90"]),
).map(lambda parts: f"cron({' '.join(parts)})")
GAPS = st.sampled_from(["NEXT", "SKIP", "SHIFT"])
FOLDS = st.sampled_from(["FIRST", "SECOND", "BOTH"])


def a_cron(expression: str, zone: str, gap: str = "", fold: str = "") -> Cron | None:
    """Return the schedule, or None for the few random expressions that never fire."""
    schedule = Cron(expression, timezone=zone, dst_gap=gap, dst_fold=fold)
    try:
        next_after(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    except ValueError as error:
        if "can never fire" not in str(error):
            raise
        return None
    return schedule


def walk_two_days(schedule: Cron, start: datetime, gap: str, fold: str) -> list[datetime]:
    """Return the times that a walk over each minute of the wall clock finds."""
    end = start + 2 * DAY
    walk = firings(
        Oracle(schedule.expression), schedule.timezone, start - MARGIN, end + MARGIN, gap, fold
    )
    return [at for at in walk if start < at <= end]


@settings(max_examples=examples(150), deadline=None)
@given(zones_and_days(), FREQUENT | EXPRESSIONS, GAPS, FOLDS)
def test_cron_fires_at_the_minutes_that_a_walk_over_the_wall_clock_finds(
    zone_and_day: tuple[str, datetime], expression: str, gap: str, fold: str
) -> None:
    zone, start = zone_and_day
    schedule = a_cron(expression, zone, gap, fold)
    assume(schedule is not None)
    assert schedule is not None
    expected = walk_two_days(schedule, start, gap, fold)
    assert list(occurrences(schedule, start, start + 2 * DAY)) == expected
    assert count_times(schedule, start, start + 2 * DAY) == len(expected)


@settings(max_examples=examples(40), deadline=None)
@given(zones_and_days(), AWS_EXPRESSIONS)
def test_eventbridge_cron_skips_the_gap_and_fires_in_the_first_fold(
    zone_and_day: tuple[str, datetime], expression: str
) -> None:
    zone, start = zone_and_day
    schedule = a_cron(expression, zone)
    assume(schedule is not None)
    assert schedule is not None
    expected = walk_two_days(schedule, start, "SKIP", "FIRST")
    assert list(occurrences(schedule, start, start + 2 * DAY)) == expected
    assert count_times(schedule, start, start + 2 * DAY) == len(expected)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1970, 2190), EXPRESSIONS | AWS_EXPRESSIONS)
def test_cron_fires_on_the_days_that_a_walk_over_every_date_finds(
    year: int, expression: str
) -> None:
    body = expression.removeprefix("cron(").split()
    midnight = " ".join(["0", "0", *body[2:]])
    text = f"cron({midnight}" if expression.startswith("cron(") else midnight
    schedule = a_cron(text, "UTC")
    start = datetime(year, 1, 1, tzinfo=UTC)
    oracle = Oracle(text)
    days = [start + number * DAY for number in range(5 * 365)]
    expected = [day for day in days if oracle.matches_day(day.date())]
    if schedule is None:
        assert expected == []
    else:
        assert list(occurrences(schedule, start - DAY, days[-1])) == [
            day for day in [start - DAY, *days] if day in expected and day >= start
        ]
        assert count_times(schedule, start - DAY, days[-1]) == len(expected)


SIX_FIELDS = st.tuples(
    lists(items(0, 59)) | st.sampled_from(["*/20", "0,30"]),
    MINUTES,
    st.sampled_from(["*", "0-3", "1", "2", "23,0", "*/2"]),
).map(lambda parts: f"{' '.join(parts)} * * *")


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from(["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Cairo"]),
    st.integers(0, 100),
    SIX_FIELDS,
    GAPS,
    FOLDS,
)
def test_cron_with_seconds_fires_at_the_seconds_that_a_walk_finds(
    zone: str, pick: int, expression: str, gap: str, fold: str
) -> None:
    changes = days_of_change(zone)
    low = changes[pick % len(changes)]
    info = pinned_zone(zone)
    while (low + timedelta(hours=1)).astimezone(info).utcoffset() == low.astimezone(
        info
    ).utcoffset():
        low += timedelta(hours=1)
    start, end = low - timedelta(hours=1), low + timedelta(hours=3)
    margin = timedelta(hours=2)
    schedule = Cron(expression, timezone=zone, dst_gap=gap, dst_fold=fold)
    walk = firings(Oracle(expression), zone, start - margin, end + margin, gap, fold)
    expected = [at for at in walk if start < at <= end]
    assert list(occurrences(schedule, start, end)) == expected
    assert count_times(schedule, start, end) == len(expected)


@settings(max_examples=examples(60), deadline=None)
@given(zones_and_days(), FREQUENT, st.integers(0, 2 * 86_400_000_000), GAPS, FOLDS)
def test_next_after_any_microsecond_is_the_first_time_of_a_walk(
    zone_and_day: tuple[str, datetime], expression: str, microseconds: int, gap: str, fold: str
) -> None:
    zone, start = zone_and_day
    after = start + timedelta(microseconds=microseconds)
    schedule = Cron(expression, timezone=zone, dst_gap=gap, dst_fold=fold)
    next_at = next_after(schedule, after)
    walk = firings(Oracle(expression), zone, start - MARGIN, start + 2 * MARGIN, gap, fold)
    expected = next((at for at in walk if at > after), None)
    if expected is None:
        assert next_at is None or next_at > start + MARGIN
        return
    assert next_at == expected
    assert is_occurrence(schedule, expected)
    assert not is_occurrence(schedule, expected + timedelta(microseconds=1))
    assert preview(schedule, after, 1).times[0][0] == next_at
