"""The English description of a schedule states exactly its times."""

import random
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from punctual.domain.schedules.cron.expression import Calendar, parse_cron
from punctual.domain.schedules.describe import describe
from punctual.domain.schedules.schedule import Cron, occurrences
from tests.support.decide.description_reader import read
from tests.support.examples import examples

SEED = 45
EXPRESSIONS = examples(3_000)
START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(days=800)
COUNT = 60


def value(generator: random.Random, low: int, high: int) -> str:
    return str(generator.randint(low, high))


def item(generator: random.Random, low: int, high: int) -> str:
    kind = generator.randrange(10)
    if kind < 4:
        return value(generator, low, high)
    span = f"{value(generator, low, high)}-{value(generator, low, high)}"
    if kind < 6:
        return span
    first = generator.choice(["*", "*", span, value(generator, low, high)])
    return f"{first}/{generator.choice([*range(1, high + 2), 45, 90, 7, 5])}"


def field(generator: random.Random, low: int, high: int, star: float) -> str:
    if generator.random() < star:
        return "*"
    return ",".join(item(generator, low, high) for _ in range(generator.choice((1, 1, 1, 2, 3))))


def day(generator: random.Random) -> str:
    last = ["L", "LW", f"L-{generator.randint(1, 30)}", f"{generator.randint(1, 31)}W", "1-31", "?"]
    return generator.choice(last) if generator.random() < 0.2 else field(generator, 1, 31, 0.5)


def weekday(generator: random.Random) -> str:
    special = ["MON#1", "5#5", "FRIL", "0L", "SUN", "sat-mon", "MON,5L", "0-6", "?"]
    return generator.choice(special) if generator.random() < 0.2 else field(generator, 0, 7, 0.5)


def an_expression(generator: random.Random) -> str:
    minute, hour = field(generator, 0, 59, 0.2), field(generator, 0, 23, 0.2)
    month = field(generator, 1, 12, 0.6)
    if generator.random() < 0.15:
        year = generator.choice(["*", "*", "2026-2030", "2027", "2027/2", "2026,2028", "2026/90"])
        date, week = generator.choice(
            [(field(generator, 1, 31, 0.3), "?"), ("?", "2-6"), ("?", "6L")]
        )
        return f"cron({minute} {hour} {date} {month} {week} {year})"
    second = f"{field(generator, 0, 59, 0.1)} " if generator.random() < 0.2 else ""
    return f"{second}{minute} {hour} {day(generator)} {month} {weekday(generator)}"


def expressions() -> list[str]:
    """Return the same random expressions in each run, without those that never fire."""
    generator = random.Random(SEED)
    texts: list[str] = []
    while len(texts) < EXPRESSIONS:
        text = an_expression(generator)
        try:
            parse_cron(text)
        except ValueError as error:
            if "can never fire" not in str(error) and "run backwards" not in str(error):
                raise
            continue
        texts.append(text)
    return texts


def check(expression: str, after: datetime) -> None:
    """Compare the next times with those of the description."""
    meaning = parse_cron(expression)
    assert isinstance(meaning, Calendar)
    schedule = Cron(expression)
    description = read(describe(schedule))
    for start in (START, after):
        end = start + WINDOW
        fired = list(islice(occurrences(schedule, start, end), COUNT))
        assert fired == list(islice(description.times(start, end), COUNT))
    assert {end for ends in description.ends for end in ends} <= set(description.minutes)
    assert len(description.rhythms) <= 1


def test_descriptions_state_the_times_of_thousands_of_expressions() -> None:
    generator, failures = random.Random(SEED + 1), []
    for expression in expressions():
        after = START + timedelta(seconds=generator.randrange(3 * 366 * 86_400))
        try:
            check(expression, after)
        except (AssertionError, ValueError) as error:
            failures.append(f"{expression}: {describe(Cron(expression))} ({type(error).__name__})")
    assert not failures, "\n".join([f"{len(failures)} are wrong", *failures[:50]])


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("Every 45 minutes", "*/45 * * * *"),
        ("Every 10 minutes, every 7 hours", "*/10 */7 * * *"),
        ("On the hour, from 22:00 to 02:00, Monday", "0 22-2 * * MON"),
        ("At 00:00, on day 1 of the month, in November to January", "0 0 1 11-2 *"),
        ("At 00:00, Friday", "0 0 1-31 * 5"),
        ("Every 20 minutes, from 09:00 to 17:00", "*/20 9-17 * * *"),
        ("At 00:00, the last Friday of the month", "0 0 * * 5"),
    ],
)
def test_reader_detects_a_false_description(text: str, expression: str) -> None:
    description = read(f"{text}, in UTC")
    end = START + WINDOW
    fired = list(islice(occurrences(Cron(expression), START, end), COUNT))
    assert fired != list(islice(description.times(START, end), COUNT))


@pytest.mark.parametrize("text", ["Sometimes, in UTC", "Every hour, daily, in UTC", "Every hour"])
def test_reader_refuses_an_unknown_description(text: str) -> None:
    with pytest.raises(ValueError, match=r"no zone|no time|not understood"):
        read(text)
