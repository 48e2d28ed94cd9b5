"""Any text is parsed, or fails with one sentence."""

from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.describe import describe
from punctual.domain.schedules.schedule import Cron, find_schedule_errors, next_after
from tests.support.examples import examples

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)
PIECES = st.sampled_from(
    [*"0159*?/-,#LWRH~@() ", "12", "MON", "jan", "cron(", "rate(", "at(", "day", "5 minutes", "-1"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
FIELDS = st.lists(st.lists(PIECES, min_size=1, max_size=5).map("".join), min_size=5, max_size=6)


@settings(max_examples=examples(600), deadline=None)
@given(st.text(max_size=300) | TEXTS | FIELDS.map(" ".join), st.text(max_size=20))
@example("cron()", "")
@example("rate()", "UTC")
@example("at()", "UTC")
@example("0 0 L-99999999999999999999 * *", "UTC")
@example("0 0 * * 99999999999999999999L", "UTC")
@example("rate(99999999999999999999 days)", "UTC")
@example("9" * 256, "UTC")
@example("*/1," * 60 + "* * * * *", "UTC")
def test_any_text_is_parsed_or_refused_with_a_message(expression: str, zone: str) -> None:
    errors = find_schedule_errors(Cron(expression, timezone=zone))
    fields = [error.field for error in errors]
    assert len(fields) == len(set(fields))
    assert all(error.message and len(error.message) < 600 for error in errors)
    if "cron_expression" not in fields:
        schedule = Cron(expression)
        next_at = next_after(schedule, NOON)
        assert next_at is None or next_at > NOON
        assert describe(schedule)
