"""Keys are unique, can be parsed, and sort as the values that they hold."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.history.batch_outcomes import batch_key
from punctual.aws.dynamodb.keys import (
    escape,
    join_parts,
    number_key,
    parse_time_key,
    split_parts,
    time_key,
    unescape,
)
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition
from punctual.aws.dynamodb.timers import keys as timer_keys
from punctual.domain.job_state import JobState
from punctual.domain.utc import EPOCH
from punctual.engine.ports.timers import Timer
from tests.support.builders import a_run

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
awkward = st.text(st.sampled_from("#$%ab0 !\x00é\U0001f600"), max_size=6)
parts = st.one_of(texts, awkward)
moments = st.timedeltas(timedelta(days=-700_000), timedelta(days=2_900_000)).map(
    lambda since: EPOCH + since
)
minutes = moments.map(lambda at: at.replace(second=0, microsecond=0))
timers = st.builds(
    Timer,
    bucket=minutes,
    shard=st.integers(0, 999),
    at=moments,
    tenant=parts,
    job_id=parts,
    version=st.integers(0, 10**9),
)


@given(parts)
def test_escaped_part_is_unescaped_and_has_no_separator(part: str) -> None:
    assert unescape(escape(part)) == part
    assert not set(escape(part)) & {"#", " "}


@given(st.lists(parts, min_size=1, max_size=4))
def test_joined_parts_are_split_again(values: list[str]) -> None:
    assert split_parts(join_parts(*values)) == values


@given(st.lists(parts, min_size=3, max_size=3), st.lists(parts, min_size=3, max_size=3))
def test_joined_parts_sort_as_their_tuples(parts_a: list[str], parts_b: list[str]) -> None:
    first, second = join_parts(*parts_a).encode(), join_parts(*parts_b).encode()
    assert (first < second) == (parts_a < parts_b)
    assert (first == second) == (parts_a == parts_b)


@given(moments, moments)
def test_time_keys_sort_by_time_and_are_parsed_again(left: datetime, right: datetime) -> None:
    assert (time_key(left) < time_key(right)) == (left < right)
    assert len(time_key(left)) == len(time_key(right))
    assert parse_time_key(time_key(left)) == left


def test_time_key_of_another_zone_is_in_utc() -> None:
    at = datetime.fromisoformat("2026-12-01T12:00:00+02:00")
    assert time_key(at) == "2026-12-01T10:00:00.000000Z"


@given(st.integers(-1, 10**9), st.integers(-1, 10**9))
def test_number_keys_sort_as_numbers(left: int, right: int) -> None:
    assert (number_key(left) < number_key(right)) == (left < right)


@given(timers)
def test_timer_key_is_parsed_to_its_timer(timer: Timer) -> None:
    assert Timer(*timer_keys.parse_timer_key(timer_keys.timer_key(*timer))) == timer


@given(timers, timers)
def test_timers_of_one_partition_sort_by_time_tenant_job_and_version(
    left: Timer, right: Timer
) -> None:
    right = right._replace(bucket=left.bucket, shard=left.shard)
    first, second = timer_keys.timer_key(*left), timer_keys.timer_key(*right)
    assert first.pk == second.pk
    assert (first.sk.encode() < second.sk.encode()) == (left.sort_key < right.sort_key)


@given(timers, timers)
def test_due_timers_and_timers_after_one_are_ranges(left: Timer, right: Timer) -> None:
    sk = timer_keys.timer_key(*right).sk
    assert (sk.encode() <= timer_keys.due_upper_bound(left.at).encode()) == (right.at <= left.at)
    is_later = sk.encode() >= timer_keys.next_sort_key(timer_keys.timer_key(*left).sk).encode()
    assert is_later == (right.sort_key > left.sort_key)


@given(parts, parts.filter(bool))
def test_state_key_is_parsed_to_tenant_and_job(tenant: str, job_id: str) -> None:
    assert keys.parse_state_key(keys.state_key(tenant, job_id)) == (tenant, job_id)


@given(parts, parts.filter(bool), parts, parts, parts.filter(bool), parts)
def test_keys_of_different_rows_never_collide(
    tenant: str, job: str, ref: str, other_tenant: str, other_job: str, other_ref: str
) -> None:
    ids, other_ids = (tenant, job, ref), (other_tenant, other_job, other_ref)
    same = ids == other_ids
    assert (keys.definition_key(*ids) == keys.definition_key(*other_ids)) == same
    assert (keys.history_key(*ids) == keys.history_key(*other_ids)) == same
    attempts = [keys.attempt_key(*each_ids, 1, 1, False) for each_ids in (ids, other_ids)]
    assert (attempts[0] == attempts[1]) == same
    assert keys.state_key(tenant, job) != keys.definition_key(other_tenant, other_job, other_ref)
    assert keys.history_key(tenant, job, ref).sk < keys.attempts_prefix(other_ref)
    claims = [a_run(nonce=f"{each_ids.replace('.', '')}.1") for each_ids in (ref, other_ref)]
    batches = [batch_key(*pair) for pair in zip((tenant, other_tenant), claims, strict=True)]
    assert (batches[0] == batches[1]) == (
        (tenant, ref.replace(".", "")) == (other_tenant, other_ref.replace(".", ""))
    )
    assert batches[0] != keys.history_partition(other_tenant, other_job)
    system = {keys.watermark_key().pk, keys.shards_key().pk, keys.partition_lease_key(NOON, 0).pk}
    assert keys.receipt_key(tenant, job).pk not in system
    lists = [list_partition(name, ListKind.RUNS, 0) for name in (tenant, other_tenant)]
    assert (lists[0] == lists[1]) == (tenant == other_tenant)


@given(parts, parts, parts)
def test_history_bounds_hold_the_runs_after_one_up_to_another(
    after: str, run_id: str, before: str
) -> None:
    low, high = (bound.encode() for bound in keys.history_bounds(before, after))
    sk = keys.history_key("t", "j", run_id).sk.encode()
    assert (low <= sk <= high) == (after < run_id <= before)
    low, high = (bound.encode() for bound in keys.history_bounds(None, None))
    assert low <= sk <= high
    assert not low <= keys.attempt_key("t", "j", run_id, 1, 1, True).sk.encode() <= high


@given(parts, parts)
def test_group_ends_before_later_groups(left: str, right: str) -> None:
    row = keys.group_sort_key(right, "00ff").encode()
    assert (row <= keys.group_upper_bound(left).encode()) == (right <= left)


@given(moments)
def test_ttl_is_never_before_its_time(at: datetime) -> None:
    expires = EPOCH + timedelta(seconds=keys.to_ttl(at))
    assert at <= expires < at + timedelta(seconds=1)


def test_attributes_of_expressions_are_fields_of_the_job_state() -> None:
    names = {
        keys.VERSION_ATTR,
        keys.WRITE_IDS_ATTR,
        keys.STATUS_ATTR,
        keys.RUNS_ATTR,
        keys.WAIT_QUEUE_ATTR,
        keys.RECENTLY_ENDED_ATTR,
    }
    assert names <= {field.encode_name for field in msgspec.structs.fields(JobState)}
