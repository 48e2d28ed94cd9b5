"""An explicit default equals an absent field."""

from typing import Any

import pytest

from punctual.engine.commands.definition import changed_schedule, compile_definition
from punctual.web.models.defaults import are_equivalent, with_defaults
from tests.support.builders_jobs import JOB_ID, NOON, after

CRON = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 2 * * *"}
EVERY = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 60}


@pytest.mark.parametrize(
    "said",
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
def test_a_default_that_is_named_is_no_news(said: dict[str, Any]) -> None:
    assert are_equivalent(EVERY, {**EVERY, **said})


@pytest.mark.parametrize(
    "said",
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
def test_what_means_something_else_is(said: dict[str, Any]) -> None:
    assert not are_equivalent(EVERY, {**EVERY, **said})


def test_true_is_not_one() -> None:
    assert not are_equivalent({**EVERY, "payload": True}, {**EVERY, "payload": 1})


def test_each_grammar_has_its_own_clock_changes() -> None:
    theirs = {**CRON, "cron_expression": "cron(0 2 * * ? *)"}
    assert (with_defaults(CRON)["dst_gap"], with_defaults(theirs)["dst_gap"]) == ("NEXT", "SKIP")
    assert are_equivalent(theirs, {**theirs, "dst_gap": "SKIP", "dst_fold": "FIRST"})
    assert not are_equivalent(theirs, {**theirs, "dst_gap": "NEXT"})


def test_a_default_of_the_schedule_that_is_named_moves_nothing() -> None:
    for document in (CRON, {**CRON, "cron_expression": "rate(5 minutes)"}, EVERY):
        old = compile_definition(document, JOB_ID, "1", NOON).schedule
        whole = {name: v for name, v in with_defaults(document).items() if v is not None}
        new = compile_definition(whole, JOB_ID, "2", after(10)).schedule
        assert changed_schedule(new, old) is None
