"""An explicit default equals an absent field."""

from typing import Any

import pytest

from punctual.engine.commands.definition import changed_schedule, compile_definition
from punctual.web.models.defaults import are_equivalent, with_defaults
from tests.support.builders_jobs import JOB_ID, NOON, after

CRON = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 2 * * *"}
EVERY = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 60}


@pytest.mark.parametrize(
    "fields",
    [
        {"timezone": "UTC"},
        {"priority": "NORMAL"},
        {"jitter_seconds": 0},
        {"exclude": []},
        {"task": {"type": "event"}},
        {"task": {"type": "event", "detail_type": "Job Run"}},
        {"tags": {}},
        {"notify": []},
        {"retry": {}},
        {"retry": {"multiplier": 2.0, "jitter": True}},
        {"max_retries": 3},
        {"delivery": "AT_LEAST_ONCE"},
        {"interval_from": "SCHEDULED"},
        {"payload": None},
    ],
    ids=str,
)
def test_explicit_default_equals_an_absent_field(fields: dict[str, Any]) -> None:
    assert are_equivalent(EVERY, {**EVERY, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"timezone": "Europe/Berlin"},
        {"max_retries": 0},
        {"payload": 0},
        {"payload": {}},
        {"retry": {"jitter": False}},
        {"task": {"type": "event", "detail_type": "Else"}},
        {"max_runs": 1},
    ],
    ids=str,
)
def test_value_other_than_the_default_is_a_change(fields: dict[str, Any]) -> None:
    assert not are_equivalent(EVERY, {**EVERY, **fields})


def test_true_and_one_are_different_values() -> None:
    assert not are_equivalent({**EVERY, "payload": True}, {**EVERY, "payload": 1})


def test_cron_and_eventbridge_grammar_have_their_own_gap_defaults() -> None:
    eventbridge = {**CRON, "cron_expression": "cron(0 2 * * ? *)"}
    assert (with_defaults(CRON)["dst_gap"], with_defaults(eventbridge)["dst_gap"]) == (
        "NEXT",
        "SKIP",
    )
    assert are_equivalent(eventbridge, {**eventbridge, "dst_gap": "SKIP", "dst_fold": "FIRST"})
    assert not are_equivalent(eventbridge, {**eventbridge, "dst_gap": "NEXT"})


def test_explicit_schedule_default_does_not_change_the_schedule() -> None:
    for document in (CRON, {**CRON, "cron_expression": "rate(5 minutes)"}, EVERY):
        former = compile_definition(document, JOB_ID, "1", NOON).schedule
        explicit = {
            name: value for name, value in with_defaults(document).items() if value is not None
        }
        compiled = compile_definition(explicit, JOB_ID, "2", after(10)).schedule
        assert changed_schedule(compiled, former) is None
