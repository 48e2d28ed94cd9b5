"""Parse one field of a cron expression into a set of numbers, as bits of an integer."""

from typing import NamedTuple

MONTH_CODES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_CODES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Field(NamedTuple):
    """The allowed values of a field. After `cycle` values a range starts again at `low`."""

    name: str
    low: int
    high: int
    cycle: int
    names: tuple[str, ...] = ()


SECOND_FIELD = Field("second", 0, 59, 60)
MINUTE_FIELD = Field("minute", 0, 59, 60)
HOUR_FIELD = Field("hour", 0, 23, 24)
DAY_OF_MONTH_FIELD = Field("day-of-month", 1, 31, 31)
MONTH_FIELD = Field("month", 1, 12, 12, MONTH_CODES)
WEEKDAY_FIELD = Field("day-of-week", 0, 7, 7, WEEKDAY_CODES)
EVENTBRIDGE_WEEKDAY_FIELD = Field("day-of-week", 1, 7, 7, WEEKDAY_CODES)
YEAR_FIELD = Field("year", 1970, 2199, 230)


def numbers(text: str, field: Field) -> int:
    """Return the bits of a list of numbers, names, ranges and steps. Bit n stands for n."""
    bits = 0
    for item in text.split(","):
        bits |= _parse_item(item, field)
    return bits


def number(text: str, field: Field) -> int:
    """Return the value of a number or a name."""
    if text.isdecimal():
        value = int(text)
        if not field.low <= value <= field.high:
            raise ValueError(
                f"{text[:20]} is out of range in the {field.name} field: "
                f"it takes {field.low} to {field.high}"
            )
        return value
    if text.upper() in field.names:
        return field.low + field.names.index(text.upper())
    raise ValueError(_value_error(text, field))


def _parse_item(item: str, field: Field) -> int:
    body, slash, step_text = item.partition("/")
    step = _parse_step(step_text, field) if slash else 1
    if body == "*":
        low, high = field.low, field.high
    else:
        first, dash, last = body.partition("-")
        low = number(first, field)
        high = number(last, field) if dash else field.high if slash else low
        if high < low:
            high += _wrap_length(body, field)
    bits = 0
    for value in range(low, high + 1, step):
        bits |= 1 << (value - field.low) % field.cycle + field.low
    return bits


def _wrap_length(body: str, field: Field) -> int:
    if field is YEAR_FIELD:
        raise ValueError(f"the years {body} run backwards")
    return field.cycle


def _parse_step(text: str, field: Field) -> int:
    """Return the step. A step that is longer than the field leaves only the first value."""
    if not text.isdecimal():
        raise ValueError(f"the step {text!r} in the {field.name} field is not a whole number")
    step = int(text)
    if step == 0:
        raise ValueError(
            f"a step of 0 in the {field.name} field would never move on: use 1 or more"
        )
    return step


def _value_error(text: str, field: Field) -> str:
    location = f"in the {field.name} field"
    if "~" in text or text[:1].upper() in ("H", "R"):
        return (
            f"{text!r} {location} asks for a random or hashed time, which is not supported: "
            f"write the number you want, and use jitter_seconds to spread jobs"
        )
    if not text:
        return f"an empty item {location}: write a number, a range such as 1-5, or *"
    if text == "?":
        return f"? is only for the day fields, not {location}: write *"
    if text[:1] == "-":
        return f"{text!r} {location} is negative: it takes {field.low} to {field.high}"
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return f"{text!r} {location} is not understood: it takes {field.low} to {field.high}{names}"
