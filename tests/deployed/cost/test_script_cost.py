"""The price of a run of a script follows its time, its memory and its calls."""

import pytest

from bench.cost.meter import Unit
from bench.cost.prices import prices
from bench.cost.scripts import RUN_SECONDS, RUNNER_OVERHEAD_SECONDS, script_cost, scripts_section
from infra.app import read_context
from infra.config.stage import Stage, read_stage


@pytest.fixture(scope="module")
def stage() -> Stage:
    return read_stage("dev", read_context()["stages"])


def test_function_is_paid_for_the_time_of_the_script(stage: Stage) -> None:
    parts = script_cost(60, [], stage, prices()).parts
    gigabytes = (512 + 128) / 1024
    dollars = 0.2 + 16.6667 * gigabytes * (60 + RUNNER_OVERHEAD_SECONDS)
    assert parts["the function of the script"] == pytest.approx(dollars)


def test_executor_is_paid_only_while_it_waits(stage: Stage) -> None:
    short, long = (script_cost(seconds, [], stage, prices()).parts for seconds in RUN_SECONDS)
    assert "the executor that waits" in short
    assert "the executor that waits" not in long
    assert "renewals by claim" not in short


def test_renewals_grow_with_the_time(stage: Stage) -> None:
    minute, hour_part = (script_cost(seconds, [], stage, prices()) for seconds in (60, 600))
    ratio = hour_part.parts["renewals by claim"] / minute.parts["renewals by claim"]
    assert ratio == pytest.approx(10)
    dollars = sum(prices().dollars_per_million(unit, 15) for unit in (Unit.PUT, Unit.GET))
    assert minute.parts["log while it runs"] == pytest.approx(dollars)


def test_report_has_a_column_for_each_time(stage: Stage) -> None:
    text = "\n".join(scripts_section([], stage, prices()))
    assert "| paid for | 1 s | 60 s |" in text
    total = script_cost(60, [], stage, prices()).dollars
    assert f"{total:.2f} |" in text
