"""The rules of unique names: which job has a name, what takes it, and what gives it up."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.errors import NameTaken, PunctualError
from punctual.engine.commands.idempotency import Submission
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.reconciler import ReconcilerPage
from punctual.engine.ports.lists.job_names import NameKey, NameRow
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import JobView
from tests.support.ports import a_reconciler
from tests.support.simulation.manual_engine import NOON, TENANT, ManualEngine

CRON = {"schedule_type": "CRON", "cron_expression": "0 9 * * *"}
INTERVAL = {"schedule_type": "INTERVAL", "interval_seconds": 60}
FUTURE = {"schedule_type": "FUTURE", "schedule_time": "2026-04-01T00:00:00Z"}
IMMEDIATE = {"schedule_type": "IMMEDIATE"}


@pytest.fixture
def engine() -> ManualEngine:
    return ManualEngine()


def submit_all(
    engine: ManualEngine, documents: Sequence[Mapping[str, Any]], key: str | None = None
) -> list[JobView | PunctualError]:
    submissions = [
        Submission(dict(document), None if key is None else f"{key}/{number}", "print")
        for number, document in enumerate(documents)
    ]
    return engine.jobs.submit(TENANT, "tests", submissions)


def submit(engine: ManualEngine, key: str | None = None, **document: Any) -> str:
    (answer,) = submit_all(engine, [{"name": "report", **CRON, **document}], key)
    if isinstance(answer, PunctualError):
        raise answer
    return answer.state.job_id


def refused_for(engine: ManualEngine, **document: Any) -> str:
    """Return the job that has the name of a refused job."""
    with pytest.raises(NameTaken) as refused:
        submit(engine, **document)
    return refused.value.job_id


def change(engine: ManualEngine, job_id: str, **document: Any) -> None:
    engine.jobs.change(TENANT, job_id, lambda _: {"name": "report", **CRON, **document})


def names(engine: ManualEngine) -> dict[str, str]:
    return {row.name: row.job_id for row in engine.memory.job_names.rows.values()}


def walk(engine: ManualEngine) -> list[ReconcilerPage]:
    applier = engine.applier()
    reconciler = a_reconciler(
        engine.memory.ports,
        applier,
        Evaluator(applier, engine.new_id),
        engine.new_id,
    )
    pages = [reconciler.step(None, 2)]
    for _ in range(100):
        if pages[-1].cursor is None:
            return pages
        pages.append(reconciler.step(pages[-1].cursor, 2))
    raise AssertionError("the walk does not end")


@pytest.mark.parametrize("schedule", [CRON, INTERVAL], ids=["cron", "interval"])
def test_second_recurring_job_of_a_name_is_refused_with_the_first(
    engine: ManualEngine, schedule: dict[str, Any]
) -> None:
    first = submit(engine)
    assert refused_for(engine, **schedule) == first
    assert set(engine.memory.job_states.rows) == {JobKey(TENANT, first)}
    assert [timer.job_id for timer in engine.timers()] == [first]


def test_name_belongs_to_a_tenant(engine: ManualEngine) -> None:
    submit(engine)
    (answer,) = engine.jobs.submit("bcme", "tests", [Submission({"name": "report", **CRON})])
    assert isinstance(answer, JobView)


@pytest.mark.parametrize("schedule", [FUTURE, IMMEDIATE], ids=["future", "immediate"])
def test_one_time_jobs_share_names_and_put_no_row(
    engine: ManualEngine, schedule: dict[str, Any]
) -> None:
    recurring = submit(engine)
    document = {"name": "report", **schedule}
    answers = submit_all(engine, [document, document])
    assert all(isinstance(answer, JobView) for answer in answers)
    assert names(engine) == {"report": recurring}


def test_paused_and_completed_jobs_keep_their_names(engine: ManualEngine) -> None:
    paused = submit(engine)
    engine.jobs.pause(TENANT, paused)
    assert refused_for(engine) == paused
    completed = submit(engine, name="old", end_time="2026-01-01T00:00:00Z")
    assert engine.state(JobKey(TENANT, completed)).status == "COMPLETED"
    assert refused_for(engine, name="old") == completed


def test_cancelled_job_gives_its_name_up(engine: ManualEngine) -> None:
    first = submit(engine)
    engine.jobs.cancel(TENANT, first)
    assert names(engine) == {}
    second = submit(engine)
    engine.jobs.cancel(TENANT, first)
    assert names(engine) == {"report": second}


def test_expired_job_loses_its_name(engine: ManualEngine) -> None:
    submit(engine, end_time="2026-01-01T00:00:00Z")
    engine.wait(timedelta(days=31).total_seconds())
    second = submit(engine)
    assert names(engine) == {"report": second}


def test_jobs_of_one_batch_are_refused_separately(engine: ManualEngine) -> None:
    report, other = {"name": "report", **CRON}, {"name": "other", **INTERVAL}
    answers = submit_all(engine, [report, other, {**report, "payload": 1}, other])
    assert isinstance(answers[0], JobView)
    assert isinstance(answers[1], JobView)
    refusals = [answer.job_id for answer in answers[2:] if isinstance(answer, NameTaken)]
    assert refusals == [answers[0].state.job_id, answers[1].state.job_id]


def test_later_job_of_a_batch_has_the_refusal_of_the_first(engine: ManualEngine) -> None:
    first = submit(engine)
    answers = submit_all(engine, [{"name": "report", **CRON}] * 2)
    assert [answer.job_id for answer in answers if isinstance(answer, NameTaken)] == [first] * 2


def test_repeated_key_answers_the_same_job(engine: ManualEngine) -> None:
    first = submit(engine, key="k")
    assert submit(engine, key="k") == first
    change(engine, first, name="renamed")
    assert submit(engine, key="k") == first
    engine.jobs.cancel(TENANT, first)
    assert submit(engine, key="k") == first


def test_repeated_batch_answers_the_same(engine: ManualEngine) -> None:
    batch = [{"name": "report", **CRON}, {"name": "report", **CRON}]
    first, refused = submit_all(engine, batch, key="k")
    repeated, refused_again = submit_all(engine, batch, key="k")
    assert isinstance(first, JobView)
    assert isinstance(repeated, JobView)
    assert first.state.job_id == repeated.state.job_id
    assert isinstance(refused, NameTaken)
    assert isinstance(refused_again, NameTaken)


def test_rename_takes_the_new_name_and_gives_the_old_one_up(engine: ManualEngine) -> None:
    job_id = submit(engine)
    change(engine, job_id, name="renamed")
    assert names(engine) == {"renamed": job_id}
    other = submit(engine)
    with pytest.raises(NameTaken) as refused:
        change(engine, job_id)
    assert refused.value.job_id == other
    assert names(engine) == {"renamed": job_id, "report": other}
    assert engine.state(JobKey(TENANT, job_id)).edition == 2


def test_change_of_other_fields_needs_no_row(engine: ManualEngine) -> None:
    job_id = submit(engine)
    (row,) = engine.memory.job_names.rows.values()
    change(engine, job_id, payload=1)
    change(engine, job_id, **INTERVAL, cron_expression=None)
    assert list(engine.memory.job_names.rows.values()) == [row]


def test_job_that_becomes_recurring_takes_its_name(engine: ManualEngine) -> None:
    one_time = submit(engine, **FUTURE, cron_expression=None)
    assert names(engine) == {}
    change(engine, one_time)
    assert names(engine) == {"report": one_time}
    another = submit(engine, **FUTURE, cron_expression=None)
    with pytest.raises(NameTaken) as refused:
        change(engine, another)
    assert refused.value.job_id == one_time
    change(engine, one_time, **FUTURE, cron_expression=None)
    assert names(engine) == {}
    change(engine, another)
    assert names(engine) == {"report": another}


@pytest.mark.parametrize("job_id", ["01800000-0000-7000-8000-000000000001", "02"])
def test_row_of_a_missing_job_is_taken_over(engine: ManualEngine, job_id: str) -> None:
    engine.memory.job_names.put([NameRow(TENANT, "report", job_id, "mark")])
    created = submit(engine)
    assert names(engine) == {"report": created}
    left = engine.memory.job_states.rows[JobKey(TENANT, job_id)].state
    assert left.is_blank


def test_row_of_an_unreadable_job_stays(
    engine: ManualEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit(engine)

    def load(_: Any) -> Any:
        raise ValueError("damaged")

    monkeypatch.setattr(engine.memory.job_states, "load", load)
    assert refused_for(engine) == job_id


def test_walk_puts_missing_rows_and_removes_others(engine: ManualEngine) -> None:
    kept = [submit(engine, name=f"job {n}") for n in range(3)]
    renamed = submit(engine, name="renamed")
    rows = engine.memory.job_names
    rows.rows.pop(NameKey(TENANT, "job 1"))
    rows.rows[NameKey(TENANT, "job 2")] = NameRow(TENANT, "job 2", renamed, "x")
    rows.rows[NameKey(TENANT, "former")] = NameRow(TENANT, "former", renamed, "y")
    rows.rows[NameKey(TENANT, "gone")] = NameRow(TENANT, "gone", "no-job", "z")
    pages = walk(engine)
    restored = {key.job_id for page in pages for key in page.restored_names}
    removed = {row.name for page in pages for row in page.removed_names}
    assert restored == {kept[1], kept[2]}
    assert removed == {"former", "gone"}
    wanted = {**{f"job {n}": job_id for n, job_id in enumerate(kept)}, "renamed": renamed}
    assert names(engine) == wanted
    assert not any(page.restored_names or page.removed_names for page in walk(engine))


def test_walk_names_two_jobs_with_one_name(engine: ManualEngine) -> None:
    first = submit(engine)
    engine.memory.job_names.rows.clear()  # damage, such as a table that was restored alone
    second = submit(engine)
    shared = [pair for page in walk(engine) for pair in page.shared_names]
    assert shared == [(JobKey(TENANT, first), JobKey(TENANT, second))]
    assert engine.now == NOON
