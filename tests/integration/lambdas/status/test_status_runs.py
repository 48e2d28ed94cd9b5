"""The list of runs that the status function writes from the stream."""

import itertools
from datetime import timedelta

from msgspec.structs import replace

from punctual.aws.dynamodb.lists.runs import LIVE_RUN_RETENTION
from punctual.domain.run import Reason, Run, RunStatus, WaitingRun
from punctual.engine.ports.rows import Detail, JobLabel
from punctual.lambdas.status.run_list import build_run_list_writer
from punctual.web.views.run import listed_run_json
from tests.support.aws.status_world import ENDED, QUEUED, RUNNING, World
from tests.support.builders import (
    NOON,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_attempt,
    an_id,
)


def test_list_shows_error_with_and_without_history_row(world: World) -> None:
    failed = replace(ENDED, status=RunStatus.FAILED)
    detail = Detail(error="exit 1")
    left = an_attempt(1, 3, failed.run_id, detail=detail, nonce=failed.nonce)
    world.store.ports.history.put_results([left])
    record = world.stream.of(
        a_job_state(version=3, runs=(RUNNING,)), a_job_state(version=4, unrecorded=(failed,))
    )
    world.follow(record)
    (early,) = world.listed_views()
    assert early.detail.error == "exit 1"
    other = replace(failed, run_id=an_id(9))
    world.store.ports.history.put_runs(
        [a_row(other.run_id, run=other, detail=Detail(error="exit 2"))]
    )
    world.follow(
        world.stream.of(a_job_state(version=4), a_job_state(version=5, unrecorded=(other,)))
    )
    rows = world.listed_views()
    assert {row.run.run_id: row.detail.error for row in rows}[other.run_id] == "exit 2"


def test_live_run_is_listed_in_its_latest_form_until_it_ends(world: World) -> None:
    waiting = WaitingRun(ENDED.run_id, 1, NOON, NOON, NOON)
    states = [
        a_job_state(version=1),
        a_job_state(version=2, wait_queue=(waiting,)),
        a_job_state(version=3, runs=(QUEUED,)),
        a_job_state(version=4, runs=(replace(RUNNING, status=RunStatus.CLAIMED),)),
        a_job_state(version=5, runs=(RUNNING,)),
        a_job_state(version=6, unrecorded=(ENDED,)),
        a_job_state(version=7),
    ]
    assert {run.run_id for run in (QUEUED, RUNNING, ENDED)} == {ENDED.run_id}
    records = [world.stream.of(old, new) for old, new in itertools.pairwise(states)]
    listed = []
    for record in records:
        world.follow(record)
        listed += world.listed()
    expected = [
        RunStatus.WAITING,
        RunStatus.QUEUED,
        RunStatus.CLAIMED,
        RunStatus.RUNNING,
        RunStatus.SUCCESS,
        RunStatus.SUCCESS,
    ]
    assert listed == [(ENDED.run_id, status) for status in expected]
    for record in records:  # again, one by one, from the first
        world.follow(record)
        assert world.listed() == [(ENDED.run_id, RunStatus.SUCCESS)]


def test_run_fired_ahead_is_listed_from_its_time_unless_it_is_withdrawn(world: World) -> None:
    first, second = a_run(an_id(1), due_at=after(60)), a_run(an_id(2), due_at=after(60))
    fired = a_job_state(version=2, runs=(first, second))
    world.follow(world.stream.of(a_job_state(version=1), fired))
    assert world.listed() == []
    world.follow(world.stream.of(fired, a_job_state(version=3, runs=(second,))))
    world.clock.set(after(61))
    assert world.listed() == [(second.run_id, RunStatus.QUEUED)]
    world.follow(world.stream.of(a_job_state(version=1), fired))
    assert world.listed() == [(second.run_id, RunStatus.QUEUED)]


def test_batch_lists_a_run_that_lives_on_and_runs_that_end_in_one_row(world: World) -> None:
    records = []
    for n in range(5):
        run_id = an_id(n)
        queued = a_job_state(an_id(50 + n), version=2, runs=(replace(QUEUED, run_id=run_id),))
        ended = replace(ENDED, run_id=run_id, inline_output="an id")
        records += [
            world.stream.of(None, queued),
            world.stream.of(queued, a_job_state(an_id(50 + n), version=3, unrecorded=(ended,))),
        ]
    alive = a_job_state(an_id(60), version=2, runs=(replace(RUNNING, run_id=an_id(9)),))
    world.follow(*records, world.stream.of(None, alive))
    assert [row["pk"]["S"].split("#")[1] for row in world.store.rows("lists")].count("runs") == 1
    assert world.listed() == [
        (an_id(9), RunStatus.RUNNING),
        *((an_id(n), RunStatus.SUCCESS) for n in reversed(range(5))),
    ]


def test_long_lived_run_is_listed_as_long_as_the_walk_writes_it_again(world: World) -> None:
    waiting = WaitingRun(an_id(1), 1, NOON, NOON, NOON)
    state = a_job_state(version=2, wait_queue=(waiting,))
    world.follow(world.stream.of(a_job_state(version=1), state))
    writer = build_run_list_writer(world.store.ports)
    for _ in range(40):
        world.clock.advance(timedelta(days=1))
        writer.write_long_lived([state], world.clock.now)
        assert world.listed() == [(an_id(1), RunStatus.WAITING)]
    ended = replace(ENDED, run_id=an_id(1), inline_output="x", ended_at=world.clock.now)
    record = world.stream.of(state, a_job_state(version=3, unrecorded=(ended,)))
    world.follow(record)
    writer.write_long_lived([state], world.clock.now)  # a walk that read the state before its end
    assert world.listed() == [(an_id(1), RunStatus.SUCCESS)]
    world.clock.advance(LIVE_RUN_RETENTION)
    assert world.listed() == [(an_id(1), RunStatus.SUCCESS)]


def test_walk_writes_no_entry_of_a_young_run_or_a_job_without_runs(world: World) -> None:
    writer = build_run_list_writer(world.store.ports)
    states = [
        a_job_state(an_id(1), runs=(a_run(changed_at=world.clock.now),)),
        a_job_state(an_id(2)),
        a_job_state(an_id(3), is_blank=True),
    ]
    assert world.store.spend(lambda: writer.write_long_lived(states, world.clock.now)) == {}


def test_list_shows_output_link_without_output(world: World) -> None:
    detail = Detail(output=b"{}", output_type="application/json")
    end = an_attempt(1, 3, ENDED.run_id, status="SUCCESS", detail=detail)
    world.store.ports.history.put_results([end])
    other = replace(ENDED, run_id=an_id(9))
    world.store.ports.history.put_runs([a_row(other.run_id, run=other, detail=detail)])
    for run in (ENDED, other):
        world.follow(
            world.stream.of(a_job_state(version=4), a_job_state(version=5, unrecorded=(run,)))
        )
    rows = world.listed_views()
    assert [row.detail for row in rows] == [replace(detail, output=b"")] * 2
    shown = [listed_run_json(row, "https://api.invalid") for row in rows]
    assert [run["output_url"].rpartition("/runs/")[2] for run in shown] == [
        f"{row.run.run_id}/output" for row in rows
    ]


def test_growing_entry_is_listed_in_its_last_state(world: World) -> None:
    def missed(count: int) -> Run:
        return a_run(
            status=RunStatus.MISSED,
            reason=Reason.OUTAGE,
            occurrence_count=count,
            last_at=after(count),
            ended_at=after(2),
            changed_at=after(count),
        )

    first, second = (
        a_job_state(version=2, unrecorded=(missed(3),)),
        a_job_state(version=3, unrecorded=(missed(9),)),
    )
    world.follow(world.stream.of(a_job_state(version=1), first))
    world.follow(world.stream.of(first, second))
    (row,) = world.listed_views()
    assert row.run.occurrence_count == 9
    assert world.stats().runs == {"MISSED": 9}


def test_inline_output_needs_no_history_read(world: World) -> None:
    run = replace(ENDED, run_id=an_id(1), inline_output="an event's id")
    record = world.stream.of(a_job_state(version=3), a_job_state(version=4, unrecorded=(run,)))
    world.store.ports.job_states.put_definitions([a_definition_row(name="nightly")])
    world.follow(world.stream.of(None, a_job_state(version=3)))
    spent = world.store.spend(lambda: world.follow(record))
    assert spent["BatchGetItem"] == 1, "sums of counts; the definition is cached"
    (row,) = world.listed_views()
    assert row.detail.output is not None, "the list shows that an output exists"
    assert row.label == JobLabel("nightly")
