"""Billed units of a run, a submission and an empty minute. They are exact."""

from difflib import unified_diff

import pytest

from bench.cost.accounts import sum_amounts, sum_dollars
from bench.cost.meter import Unit
from bench.cost.page import DOCUMENT, STAGES, build_document, idle_costs
from bench.cost.words import explain, short_role
from tests.support.deployed.scenes import SCENES, measured


def by_kind(scene: str, unit: Unit) -> dict[str, float]:
    """Units by function and what they were spent on."""
    units: dict[str, float] = {}
    for line in measured(scene).lines:
        if line.unit is unit:
            name = f"{short_role(line.role)}, {line.purpose}"
            units[name] = round(units.get(name, 0) + line.amount, 4)
    return units


OWN_WRITES = {
    "poller, jobs: state": 1,
    "executor-quick, jobs: state": 2,
    "executor-quick, runs: run": 1,
    "status, lists: jobs": 1,
}
SHARED_WRITES = {  # by all runs of a batch
    "poller, control: #lease": 2,
    "poller, timers: timer": 1,
    "poller, timers: timer deleted": 1,
    "status, control: #counted": 3,  # the log, and the sums of a slice in a transaction
    "status, control: #uncounted": 1,
    "status, control: #uncounted deleted": 1,
    "status, lists: runs": 1,
    "status, control: #totals": 2,  # a transaction costs double
}
FEED = "status, lists: feed"  # a row for each batch of the stream: ten runs take two, one takes one
OUTCOMES = {
    "executor-quick, runs: results": 1
}  # outcomes of a batch, until each run has its own row


def test_recurring_run_writes_five_own_rows() -> None:
    shared = {purpose: units / 10 for purpose, units in SHARED_WRITES.items()}
    assert by_kind("ten", Unit.WRITE) == {**OWN_WRITES, **shared, FEED: 0.2}
    assert sum(OWN_WRITES.values()) <= 5


def test_timers_of_twenty_recurring_runs_are_two_rows() -> None:
    units = by_kind("many", Unit.WRITE)
    assert units["poller, timers: timer"] == units["poller, timers: timer deleted"] == 2 / 20


def test_single_recurring_run_pays_all_shared_rows() -> None:
    assert by_kind("alone", Unit.WRITE) == {**OWN_WRITES, **SHARED_WRITES, FEED: 1}
    assert by_kind("alone", Unit.PUT) == {}


@pytest.mark.parametrize(("scene", "runs"), [("outputs", 10), ("output", 1)])
def test_each_output_is_one_object_and_batch_shares_a_row(scene: str, runs: int) -> None:
    assert by_kind(scene, Unit.PUT) == {"executor-quick, outputs: PutObject": 1}
    shared = {purpose: n / runs for purpose, n in {**SHARED_WRITES, **OUTCOMES}.items()}
    feed = {FEED: min(2, runs) / runs}
    assert by_kind(scene, Unit.WRITE) == {**OWN_WRITES, **shared, **feed}


def test_discarded_output_costs_nothing() -> None:
    assert by_kind("discards", Unit.PUT) == {}
    assert by_kind("discards", Unit.WRITE) == by_kind("ten", Unit.WRITE)
    assert sum_dollars(measured("discards").lines) - sum_dollars(measured("ten").lines) < 0.01


def test_recurring_run_reads_seven_rows() -> None:
    own = {purpose: n for purpose, n in by_kind("ten", Unit.READ).items() if n >= 0.3}
    assert own == {
        "poller, jobs: state": 1,
        "executor-quick, jobs: state": 2,
        "executor-quick, jobs: definition": 1,
        "poller, runs: run": 1,
        "status, runs: run": 1,
        "status, lists: jobs": 1,
    }


def test_ten_runs_cost_one_request_to_each_queue_operation() -> None:
    assert by_kind("ten", Unit.FIFO) == {
        "poller, punctual-dev-quick-normal.fifo: SendMessageBatch": 0.1,
        "executor-quick, punctual-dev-quick-normal.fifo: ReceiveMessage": 0.1,
        "executor-quick, punctual-dev-quick-normal.fifo: DeleteMessageBatch": 0.1,
    }
    assert by_kind("ten", Unit.PUT) == {}
    assert by_kind("ten", Unit.EVENT) == {"status, Run State Change": 1}


def test_hundred_minutely_jobs_share_their_waiting_time() -> None:
    lines = measured("hundred").lines
    assert sum_amounts(lines, Unit.WRITE) <= 6.1
    assert (
        sum(line.dollars for line in lines if line.purpose == "waiting") <= sum_dollars(lines) / 50
    )


def test_one_shot_run_writes_six_rows() -> None:
    own = {purpose: n for purpose, n in by_kind("one-shot", Unit.WRITE).items() if n >= 1}
    assert own == {**OWN_WRITES, "poller, timers: timer deleted": 1}, (
        "each was submitted on its own"
    )
    assert sum(own.values()) <= 6
    assert sum_amounts(measured("one-shot").lines, Unit.WRITE) <= 7.5, (
        "a tenth of each shared row included"
    )


COUNTS = "status, lists: jobcounts"  # a batch that creates or ends jobs opens and closes a count


def test_submission_writes_three_rows_its_name_and_one_for_the_list() -> None:
    own = {purpose: n for purpose, n in by_kind("submission", Unit.WRITE).items() if n >= 1}
    assert own == {
        "job-service, jobs: state": 1,
        "job-service, jobs: definition": 1,
        "job-service, timers: timer": 1,
        "job-service, jobs: names": 1,
        "status, lists: jobs": 1,
    }
    shared = {purpose: n for purpose, n in by_kind("submission", Unit.WRITE).items() if n < 1}
    assert shared == {"status, audit: row": 0.1, FEED: 0.1, COUNTS: 0.2}, "by ten"
    assert sum_amounts(measured("submission").lines, Unit.WRITE) <= 5.4
    assert by_kind("submission", Unit.READ) == {"status, jobs: definition": 1}
    assert by_kind("submission", Unit.SQS) == {}


def test_kilobyte_of_payload_costs_one_write_unit() -> None:
    assert sum_amounts(measured("large submission").lines, Unit.WRITE) == pytest.approx(6.4)


def test_empty_minute_costs_two_queries_a_shard() -> None:
    reads = by_kind("minute", Unit.READ)
    assert reads.pop("planner, timers: query") == 2
    assert reads == {"planner, control: #shards": 1, "planner, jobs: query": 1}
    assert by_kind("minute", Unit.WRITE) == {"planner, control: #watermark": 1}


def test_round_of_dead_letters_costs_one_request_a_queue() -> None:
    asked = "dead-letters, punctual-dev-{}-dead.fifo: ReceiveMessage"
    queues = ("quick-high", "quick-normal", "quick-low", "long")
    assert by_kind("round", Unit.FIFO) == {asked.format(queue): 1 for queue in queues}
    assert by_kind("round", Unit.READ) == by_kind("round", Unit.WRITE) == {}


@pytest.mark.parametrize("stage", STAGES)
def test_idle_month_costs_at_most_its_limit(stage: str) -> None:
    lines, _ = idle_costs(stage)
    needed = sum(line.dollars for line in lines if not line.is_optional)
    assert needed <= {"dev": 1.97, "prod": 2.07}[stage]  # with two sources of standard queues


def test_idle_month_of_dev_costs_only_the_dashboard_besides() -> None:
    lines, _ = idle_costs("dev")
    assert {line.label: line.dollars for line in lines if line.is_optional} == {"dashboards": 3.00}


CEILINGS = {
    "hundred": 6.17,
    "many": 6.37,
    "ten": 6.92,
    "discards": 6.92,
    "outputs": 12.01,
    "output": 26.52,
    "alone": 21.07,
    "one-shot": 8.72,
    "submission": 6.91,
    "large submission": 7.54,
    "minute": 1.77,
    "day": 457.28,
    "round": 2.50,
}


def test_every_scene_has_a_cost_limit() -> None:
    assert CEILINGS.keys() == SCENES.keys()


@pytest.mark.parametrize("scene", CEILINGS)
def test_scene_costs_at_most_its_limit(scene: str) -> None:
    assert sum_dollars(measured(scene).lines) <= CEILINGS[scene]


@pytest.mark.parametrize("scene", SCENES)
def test_every_cost_line_has_an_explanation(scene: str) -> None:
    lines = measured(scene).lines
    assert lines
    assert all(explain(line) for line in lines)


def test_cost_page_is_current() -> None:
    counted = build_document({name: measured(name) for name in SCENES}).splitlines()
    stored = DOCUMENT.read_text().splitlines()
    difference = "\n".join(unified_diff(stored, counted, n=0, lineterm=""))
    assert difference == "", "run make cost"
