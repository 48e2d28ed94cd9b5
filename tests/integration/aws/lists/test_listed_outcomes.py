"""A page of jobs on AWS shows outcomes of the rows of the list, in a bounded number of reads."""

from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest

from punctual.domain.identifiers import occurrence_id
from punctual.domain.run import RunStatus
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_index import JobQuery
from punctual.engine.ports.monitor import Monitor
from punctual.engine.queries.slices import finish
from tests.support.aws.job_lists import JobLists
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import (
    NOON,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_id,
)
from tests.support.ports import job_queries

PAGE = 200
SLOTS = 4


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def put_jobs(aws: Moto, number: int) -> None:
    """Put jobs, each with an ended run in the history, a failed one, and their rows."""
    job_ids = [an_id(job) for job in range(number)]
    aws.ports.job_states.put_definitions([a_definition_row(job_id) for job_id in job_ids])
    lists = JobLists(aws.clients.dynamodb, aws.settings, lambda: NOON)
    for place, status in enumerate((RunStatus.SUCCESS, RunStatus.FAILED)):
        swaps = []
        for job_id in job_ids:
            run = a_run(
                occurrence_id(job_id, after(60 * place)),
                status,
                scheduled_at=after(60 * place),
                started_at=after(60 * place),
                attempt_at=after(60 * place),
                ended_at=after(60 * place + 2.5),
            )
            aws.ports.history.put_runs([a_row(run.run_id, job_id, run=run)])
            state = a_job_state(
                job_id, version=place + 1, latest_run_id=run.run_id, unrecorded=(run,)
            )
            swaps.append(Swap(state, place))
        assert all(aws.ports.job_states.swap(swaps))
        lists.follow()


def test_page_of_jobs_shows_outcomes_in_a_bounded_number_of_reads(aws: Moto) -> None:
    put_jobs(aws, PAGE)
    queries = job_queries(
        aws.ports, lambda: NOON, cast(Monitor, None), listed_runs=aws.ports.listed_jobs
    )
    pages = []
    spent = aws.spend(lambda: pages.append(finish(queries.jobs("acme", JobQuery(), PAGE, None))))
    # The rows of each slot are queried. Two batches of a hundred read each of the job states, the
    # definitions, the latest runs, and the outcomes of the rows.
    assert spent["Query"] <= 2 * SLOTS
    assert spent["BatchGetItem"] <= 8
    assert set(spent) == {"Query", "BatchGetItem"}
    views = pages[0].items
    assert len(views) == PAGE
    for view in views:
        assert [run.status for run in view.outcomes.recent] == ["FAILED", "SUCCESS"]
        assert view.outcomes.usual_duration == timedelta(seconds=2.5)


def test_list_and_job_show_the_same_outcomes(aws: Moto) -> None:
    put_jobs(aws, 3)
    queries = job_queries(
        aws.ports, lambda: NOON, cast(Monitor, None), listed_runs=aws.ports.listed_jobs
    )
    for view in finish(queries.jobs("acme", JobQuery(), 10, None)).items:
        shown = queries.job("acme", view.state.job_id).outcomes
        assert view.outcomes.usual_duration == shown.usual_duration
        assert [run.run_id for run in view.outcomes.recent] == [run.run_id for run in shown.recent]
