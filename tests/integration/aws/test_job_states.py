"""Job states on DynamoDB: swaps, leases, expiry, lists, definitions, and their calls."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from punctual.domain.errors import Unavailable, Unreadable
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Lease, WaitingRun
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import DefinitionRow, JobKey
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders_jobs import JOB_ID, NOON, a_job, after

KEY = JobKey("t", JOB_ID)
RUN = "01900000-0000-7000-8000-0000000000aa"


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aws(clock: Clock) -> Iterator[Moto]:
    with moto(clock) as aws:
        yield aws


def created(aws: Moto, **fields: Any) -> JobState:
    head = a_job(**{"write_ids": ("w1",), **fields})
    assert aws.ports.job_states.swap([Swap(head, 0)]) == [True]
    return head


def changed(head: JobState, writer: str, **fields: Any) -> JobState:
    new = {"version": head.version + 1, "write_ids": (*head.write_ids, writer), **fields}
    return replace(head, **new)


def loaded(aws: Moto, key: JobKey = KEY) -> StoredState | None:
    return aws.ports.job_states.load([key]).get(key)


def test_swap_replaces_all_fields(aws: Moto) -> None:
    waiting = WaitingRun("r", 1, NOON, NOON, NOON)
    head = created(aws, wait_queue=(waiting,), latest_run_id="r")
    new = changed(
        head, "w2", wait_queue=(), latest_run_id="", next_at=None, status=JobStatus.PAUSED
    )
    assert aws.ports.job_states.swap([Swap(new, 1)]) == [True]
    assert loaded(aws) == StoredState(new, {})


def test_one_of_two_swaps_of_a_version_wins(aws: Moto) -> None:
    head = created(aws)
    winner, loser = changed(head, "one"), changed(head, "other", started_runs=9)
    assert aws.ports.job_states.swap([Swap(winner, 1), Swap(loser, 1)]) == [True, False]
    assert loaded(aws) == StoredState(winner, {})


def test_job_state_is_created_once(aws: Moto) -> None:
    created(aws)
    assert aws.ports.job_states.swap([Swap(a_job(write_ids=("x",), started_runs=5), 0)]) == [False]
    assert aws.ports.job_states.swap([Swap(a_job(job_id="other", version=4), 3)]) == [False]


def test_repeated_swap_with_own_write_id_has_won(aws: Moto) -> None:
    new = changed(created(aws), "me")
    assert aws.ports.job_states.swap([Swap(new, 1)]) == [True]
    assert aws.ports.job_states.swap([Swap(new, 1)]) == [True]
    later = changed(new, "another")
    assert aws.ports.job_states.swap([Swap(later, 2)]) == [True]
    assert aws.ports.job_states.swap([Swap(new, 1)]) == [True]
    assert loaded(aws) == StoredState(later, {})


def test_leases_are_stored_with_job_state(aws: Moto) -> None:
    head = created(aws)
    lease = Lease(2, after(30))
    claimed = changed(head, "w2")
    assert aws.ports.job_states.swap([Swap(claimed, 1, {RUN: lease})]) == [True]
    assert loaded(aws) == StoredState(claimed, {RUN: lease})
    other = changed(claimed, "w3")
    assert aws.ports.job_states.swap([Swap(other, 2)]) == [True]
    assert loaded(aws) == StoredState(other, {RUN: lease})
    ended = changed(other, "w4")
    assert aws.ports.job_states.swap([Swap(ended, 3, {RUN: None})]) == [True]
    assert loaded(aws) == StoredState(ended, {})


def test_renewal_extends_lease_without_new_version(aws: Moto) -> None:
    claimed = changed(created(aws), "w2")
    aws.ports.job_states.swap([Swap(claimed, 1, {RUN: Lease(2, after(30))})])
    beats = [
        LeaseRenewal(KEY, RUN, 2, after(60)),
        LeaseRenewal(KEY, RUN, 3, after(90)),
        LeaseRenewal(KEY, "x", 2, NOON),
    ]
    assert aws.ports.job_states.renew_leases(beats) == [claimed, None, None]
    assert loaded(aws) == StoredState(claimed, {RUN: Lease(2, after(60), is_renewed=True)})


def test_swap_with_outdated_required_lease_loses(aws: Moto) -> None:
    claimed = changed(created(aws), "w2")
    read = Lease(2, after(30))
    aws.ports.job_states.swap([Swap(claimed, 1, {RUN: read})])
    aws.ports.job_states.renew_leases([LeaseRenewal(KEY, RUN, 2, after(60))])
    lost = Swap(changed(claimed, "w3"), 2, {RUN: None}, {RUN: read})
    assert aws.ports.job_states.swap([lost]) == [False]
    present = replace(lost, required_leases={RUN: Lease(2, after(60), is_renewed=True)})
    assert aws.ports.job_states.swap([present]) == [True]
    assert loaded(aws) == StoredState(lost.state, {})


def test_expired_job_state_is_absent_and_replaceable(aws: Moto, clock: Clock) -> None:
    over = a_job(status=JobStatus.COMPLETED, ended_at=NOON, write_ids=("old",))
    aws.ports.job_states.swap([Swap(over, 0, {RUN: Lease(1, NOON)})])
    assert loaded(aws) is not None
    clock.now = NOON + timedelta(days=30)
    assert loaded(aws) is None
    assert aws.ports.job_states.page("t", None, 10).items == []
    assert aws.ports.job_states.walk(None, 10).states == []
    assert aws.ports.job_states.swap([Swap(changed(over, "w"), 1)]) == [False]
    new = a_job(write_ids=("new",))
    assert aws.ports.job_states.swap([Swap(new, 0)]) == [True]
    assert loaded(aws) == StoredState(new, {})


def test_blank_job_state_is_loaded_and_not_listed(aws: Moto, clock: Clock) -> None:
    blank = created(aws, is_blank=True, ended_at=NOON, status=JobStatus.COMPLETED, rules={})
    assert loaded(aws) == StoredState(blank, {})
    assert aws.ports.job_states.page("t", None, 10).items == []
    taken = a_job(version=2, write_ids=("w2",))
    assert aws.ports.job_states.swap([Swap(taken, 1)]) == [True]
    clock.now = NOON + timedelta(days=60)
    assert loaded(aws) == StoredState(taken, {})


def a_definition_row(job_id: str, ref: str = "1", **fields: Any) -> DefinitionRow:
    return DefinitionRow("t", job_id, ref, 1, NOON, "näme \u2028", {"name": "n"}, **fields)


def job_ids(count: int) -> list[str]:
    return [sortable_id(after(n), (n << 6).to_bytes(10, "big")) for n in range(count)]


def with_jobs(aws: Moto, ids: list[str]) -> None:
    aws.ports.job_states.put_definitions([a_definition_row(run_id) for run_id in ids])
    heads = [a_job(job_id=run_id, write_ids=("w",)) for run_id in ids]
    assert all(aws.ports.job_states.swap([Swap(head, 0) for head in heads]))


def pages(aws: Moto, limit: int, between: Any = None) -> list[list[str]]:
    job_ids: list[list[str]] = []
    before = None
    while True:
        page = aws.ports.job_states.page("t", before, limit)
        job_ids.append([head.job_id for head, _ in page.items])
        assert all(body == a_definition_row(head.job_id) for head, body in page.items)
        before = page.before
        if before is None:
            return job_ids
        if between is not None:
            between()
            between = None


def listed(job_pages: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(job_pages))


def test_jobs_are_listed_newest_first_until_last_page(aws: Moto) -> None:
    ids = job_ids(40)
    with_jobs(aws, ids)
    job_pages = pages(aws, 20)
    assert [len(page) for page in job_pages] == [20, 20]
    assert listed(job_pages) == ids[::-1]
    assert [len(page) for page in pages(aws, 100)] == [40]


def test_job_list_has_no_gaps_or_duplicates_while_jobs_are_added(aws: Moto) -> None:
    ids = job_ids(30)
    with_jobs(aws, ids[:25])
    job_pages = pages(aws, 7, between=lambda: with_jobs(aws, ids[25:]))
    assert listed(job_pages) == ids[:25][::-1]


def test_job_list_has_one_tenant(aws: Moto) -> None:
    with_jobs(aws, job_ids(2))
    created(aws, tenant="t#", job_id="j1")
    created(aws, tenant="", job_id="j2")
    assert len(listed(pages(aws, 10))) == 2
    assert aws.ports.job_states.page("x", None, 10).items == []


def test_walk_yields_every_job_state_of_every_tenant(aws: Moto) -> None:
    with_jobs(aws, job_ids(9))
    created(aws, tenant="a b#c", job_id="j")
    met, cursor = [], None
    while True:
        walked = aws.ports.job_states.walk(cursor, 4)
        met += [head.job_id for head in walked.states]
        cursor = walked.cursor
        if cursor is None:
            break
    assert sorted(met) == sorted([*job_ids(9), "j"])


def noise(size: int) -> str:
    """Return text that does not compress well."""
    chance = Random(size)
    return "".join(chr(0x4E00 + chance.randrange(20_000)) for _ in range(size // 3))


@pytest.mark.parametrize("size", [0, 10_000, 300_000, 900_000])
def test_definition_of_any_size_is_read_back(aws: Moto, size: int) -> None:
    body = a_definition_row(
        "j", "2", payload={"a": [1, 2.5, None, noise(size)], "": {"\U0001f600": {}}}
    )
    small = a_definition_row("j", "1", tags={"é": "#"})
    aws.ports.job_states.put_definitions([body, small])
    key = JobKey("t", "j")
    wanted = [(key, "2"), (key, "1"), (key, "none")]
    assert aws.ports.job_states.load_definitions(wanted) == {(key, "2"): body, (key, "1"): small}


def test_definition_without_a_part_is_an_error(aws: Moto) -> None:
    aws.ports.job_states.put_definitions([a_definition_row("j", payload=noise(900_000))])
    place = keys.definition_key("t", "j", "1", 1)
    aws.clients.dynamodb.delete_item(TableName="jobs", Key=place.item())
    with pytest.raises(Unavailable, match="part of a job's definition"):
        aws.ports.job_states.load_definitions([(JobKey("t", "j"), "1")])


def test_job_state_of_newer_format_is_unavailable(aws: Moto) -> None:
    created(aws)
    (row,) = aws.rows("jobs")
    row[keys.LAYOUT_ATTR] = to_attribute(keys.ROW_LAYOUT + 1)
    aws.clients.dynamodb.put_item(
        TableName="jobs", Item=row, ConditionExpression="attribute_exists(pk)"
    )
    with pytest.raises(Unavailable, match="later version"):
        loaded(aws)


def test_job_state_of_older_format_is_refused_by_its_name(aws: Moto) -> None:
    created(aws)
    (row,) = aws.rows("jobs")
    row[keys.LAYOUT_ATTR] = to_attribute(keys.ROW_LAYOUT - 1)
    aws.clients.dynamodb.put_item(
        TableName="jobs", Item=row, ConditionExpression="attribute_exists(pk)"
    )
    with pytest.raises(Unreadable, match=r"format 1; this version of Punctual reads only .* 2"):
        loaded(aws)


def test_job_states_are_loaded_a_hundred_at_a_time(aws: Moto) -> None:
    ids = job_ids(101)
    with_jobs(aws, ids)
    wanted = [JobKey("t", job_id) for job_id in (*ids, *ids)]
    states: dict[JobKey, StoredState] = {}
    assert aws.spend(lambda: states.update(aws.ports.job_states.load(wanted))) == {
        "BatchGetItem": 2
    }
    assert len(states) == 101


def test_job_state_operations_cost_few_calls(aws: Moto) -> None:
    heads = aws.ports.job_states
    head = created(aws)
    new = changed(head, "w2")
    swap = Swap(new, 1, {RUN: Lease(2, after(30))})
    assert aws.spend(lambda: heads.swap([swap])) == {"UpdateItem": 1}
    assert aws.spend(lambda: heads.swap([swap])) == {
        "UpdateItem": 1
    }  # the answer of the refused write has the row, so no read follows
    assert aws.spend(lambda: heads.swap([Swap(a_job(job_id="x"), 0)])) == {"PutItem": 1}
    assert aws.spend(lambda: heads.renew_leases([LeaseRenewal(KEY, RUN, 2, after(60))])) == {
        "UpdateItem": 1
    }
    assert aws.spend(lambda: heads.load([KEY])) == {"BatchGetItem": 1}
    bodies = [a_definition_row("j", str(n)) for n in range(26)]
    assert aws.spend(lambda: heads.put_definitions(bodies)) == {"BatchWriteItem": 2}
    named = [
        (KEY, head.current_rules.definition_ref),
        (JobKey("t", "x"), head.current_rules.definition_ref),
    ]
    heads.put_definitions([a_definition_row(key.job_id, ref) for key, ref in named])
    assert aws.spend(lambda: heads.load_definitions(named)) == {"BatchGetItem": 1}
    assert aws.spend(lambda: heads.page("t", None, 10)) == {"Query": 4, "BatchGetItem": 2}
    assert aws.spend(lambda: heads.walk(None, 10)) == {"Scan": 4}
    nothing: list[Callable[[list[Any]], object]] = [
        heads.load,
        heads.swap,
        heads.renew_leases,
        heads.put_definitions,
        heads.load_definitions,
    ]
    for work in nothing:
        assert aws.spend(partial(work, [])) == {}
