"""`punctual preview --compare croniter` agrees, differs with a reason, or says what is missing."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

from punctual.domain.schedules import schedule
from punctual.domain.schedules.schedule import Cron
from punctual_cli.commands.cron_comparison import Comparison, Difference, compare_times
from punctual_cli.errors import CommandError


def compared(
    expression: str, start: str, tz: str = "UTC", count: int = 5, fold: str = "", gap: str = ""
) -> Comparison:
    after = datetime.fromisoformat(start).replace(tzinfo=UTC)
    cron = Cron(expression, timezone=tz, dst_fold=fold, dst_gap=gap, anchor_at=after)
    assert schedule.find_schedule_errors(cron) == ()
    return compare_times(
        cron, after, [utc for utc, _ in schedule.preview(cron, after, count).times]
    )


def first_difference(expression: str, start: str, tz: str = "UTC", gap: str = "") -> Difference:
    difference = compared(expression, start, tz, gap=gap).difference
    assert difference is not None
    return difference


@pytest.mark.parametrize(
    ("expression", "tz", "start"),
    [
        ("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00"),
        ("*/30 * * * *", "Europe/Berlin", "2027-10-30T22:00"),
        ("*/15 * * * * *", "UTC", "2027-01-01T00:00"),
        ("0 22-2 * * *", "UTC", "2027-01-01T00:00"),
        ("0 0 13 * FRI", "UTC", "2027-01-01T00:00"),
        ("0 0 1W * *", "UTC", "2027-01-01T00:00"),
        ("@monthly", "Asia/Kathmandu", "2027-01-01T00:00"),
        ("0 0 29 2 *", "UTC", "2027-01-01T00:00"),
    ],
)
def test_compare_with_the_same_meaning_agrees(expression: str, tz: str, start: str) -> None:
    comparison = compared(expression, start, tz)
    assert comparison.agrees
    assert comparison.compared == 5


def test_compare_over_a_repeated_hour_names_the_clock_change() -> None:
    difference = first_difference("30 2 * * *", "2027-10-30T12:00", "Europe/Berlin")
    assert difference.position == 2
    assert difference.punctual == datetime(2027, 11, 1, 1, 30, tzinfo=UTC)
    assert difference.croniter == datetime(2027, 10, 31, 1, 30, tzinfo=UTC)
    (reason,) = difference.reasons
    assert "02:30 comes twice and fires the first time only in Punctual." in reason
    assert reason.endswith(" croniter fires both times.")


def test_compare_with_fold_both_agrees() -> None:
    assert compared("30 2 * * *", "2027-10-30T12:00", "Europe/Berlin", fold="BOTH").agrees


def test_compare_with_gap_skip_names_the_clock_change() -> None:
    difference = first_difference("30 2 * * *", "2027-03-27T12:00", "Europe/Berlin", gap="SKIP")
    assert difference.croniter == datetime(2027, 3, 28, 1, tzinfo=UTC)
    (reason,) = difference.reasons
    assert "02:30 does not exist then and does not fire in Punctual." in reason
    assert reason.endswith(" croniter fires at the first moment after.")


def test_compare_that_starts_after_the_clock_change_names_it() -> None:
    difference = first_difference("30 2 * * *", "2027-10-31T01:05", "Europe/Berlin")
    assert difference.position == 1
    assert "clocks in Europe/Berlin go back" in difference.reasons[0]


def test_compare_of_two_day_fields_with_a_star_names_the_rule() -> None:
    difference = first_difference("0 0 */10 * MON", "2027-01-01T00:00")
    assert difference.punctual == datetime(2027, 1, 11, tzinfo=UTC)
    assert difference.croniter == datetime(2027, 1, 4, tzinfo=UTC)
    (reason,) = difference.reasons
    assert reason.startswith("A day field begins with *.")


def test_compare_of_a_range_of_one_value_names_it() -> None:
    (reason,) = first_difference("5-5/7 * * * *", "2027-01-01T00:00").reasons
    assert "the range 5-5 as one value" in reason


def test_compare_without_a_known_rule_does_not_invent_a_reason() -> None:
    after = datetime(2027, 1, 1, tzinfo=UTC)
    wrong = after + timedelta(hours=7)
    difference = compare_times(Cron("0 9 * * *", anchor_at=after), after, [wrong]).difference
    assert difference is not None
    assert difference.reasons == (
        "No known rule explains the difference. One of the two programs may have a bug.",
    )


def test_compare_of_an_expression_that_croniter_refuses_says_so() -> None:
    comparison = compared("0 0 LW * *", "2027-01-01T00:00")
    assert not comparison.agrees
    assert "not acceptable" in comparison.error
    assert comparison.difference is None


@pytest.mark.parametrize("expression", ["rate(5 minutes)", "cron(0 9 ? * MON-FRI *)"])
def test_compare_of_an_eventbridge_form_is_refused(expression: str) -> None:
    with pytest.raises(CommandError, match="croniter does not read"):
        compared(expression, "2027-01-01T00:00")


def test_compare_without_croniter_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "croniter", None)
    with pytest.raises(CommandError) as raised:
        compared("0 9 * * *", "2027-01-01T00:00")
    assert "which is not installed" in raised.value.failure.message
    assert ".[compare]" in raised.value.failure.advice


def test_difference_as_json_has_both_times() -> None:
    comparison = compared("30 2 * * *", "2027-10-30T12:00", "Europe/Berlin").as_json()
    assert comparison["with"] == "croniter"
    assert comparison["agrees"] is False
    assert comparison["difference"]["punctual"] == "2027-11-01T01:30:00.000Z"
    assert comparison["difference"]["croniter"] == "2027-10-31T01:30:00.000Z"
