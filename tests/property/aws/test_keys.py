"""Keys: they name one thing each, can be read back, and sort as what they are made of."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.history.batch_outcomes import batch_key
from punctual.aws.dynamodb.sort_keys import (
    escape,
    join_parts,
    number_key,
    parse_time_key,
    split_parts,
    time_key,
    unescape,
)
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
def test_an_escaped_part_reads_back_and_holds_no_separator(part: str) -> None:
    assert unescape(escape(part)) == part
    assert not set(escape(part)) & {"#", " "}


@given(st.lists(parts, min_size=1, max_size=4))
def test_parts_read_back(some: list[str]) -> None:
    assert split_parts(join_parts(*some)) == some


@given(st.lists(parts, min_size=3, max_size=3), st.lists(parts, min_size=3, max_size=3))
def test_keys_sort_as_the_tuples_of_their_parts(one: list[str], other: list[str]) -> None:
    first, second = join_parts(*one).encode(), join_parts(*other).encode()
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


@given(moments, moments)
def test_the_order_of_moments_is_the_order_of_time(one: datetime, other: datetime) -> None:
    assert (time_key(one) < time_key(other)) == (one < other)
    assert len(time_key(one)) == len(time_key(other))
    assert parse_time_key(time_key(one)) == one


def test_a_moment_in_another_zone_is_the_same_moment() -> None:
    at = datetime.fromisoformat("2026-12-01T12:00:00+02:00")
    assert time_key(at) == "2026-12-01T10:00:00.000000Z"


@given(st.integers(-1, 10**9), st.integers(-1, 10**9))
def test_the_order_of_numbers_is_the_order_of_their_text(one: int, other: int) -> None:
    assert (number_key(one) < number_key(other)) == (one < other)


@given(timers)
def test_a_timer_reads_back(timer: Timer) -> None:
    assert Timer(*timer_keys.parse_timer_key(timer_keys.timer_key(*timer))) == timer


@given(timers, timers)
def test_timers_of_one_place_sort_by_time_then_tenant_job_and_version(
    one: Timer, other: Timer
) -> None:
    other = other._replace(bucket=one.bucket, shard=one.shard)
    first, second = timer_keys.timer_key(*one), timer_keys.timer_key(*other)
    assert first.pk == second.pk
    assert (first.sk.encode() < second.sk.encode()) == (one.sort_key < other.sort_key)


@given(timers, timers)
def test_what_is_due_and_what_is_behind_a_timer_are_ranges(one: Timer, other: Timer) -> None:
    sk = timer_keys.timer_key(*other).sk
    assert (sk.encode() <= timer_keys.due_upper_bound(one.at).encode()) == (other.at <= one.at)
    behind = sk.encode() >= timer_keys.next_sort_key(timer_keys.timer_key(*one).sk).encode()
    assert behind == (other.sort_key > one.sort_key)


@given(parts, parts.filter(bool))
def test_a_head_reads_back(tenant: str, job_id: str) -> None:
    assert keys.parse_state_key(keys.state_key(tenant, job_id)) == (tenant, job_id)


@given(parts, parts.filter(bool), parts, parts, parts.filter(bool), parts)
def test_rows_of_different_things_never_collide(
    tenant: str, job: str, ref: str, other_tenant: str, other_job: str, other_ref: str
) -> None:
    mine, others = (tenant, job, ref), (other_tenant, other_job, other_ref)
    same = mine == others
    assert (keys.definition_key(*mine) == keys.definition_key(*others)) == same
    assert (keys.history_key(*mine) == keys.history_key(*others)) == same
    tried = [keys.attempt_key(*which, 1, 1, False) for which in (mine, others)]
    assert (tried[0] == tried[1]) == same
    assert keys.state_key(tenant, job) != keys.definition_key(other_tenant, other_job, other_ref)
    assert keys.history_key(tenant, job, ref).sk < keys.attempts_prefix(other_ref)
    claims = [a_run(nonce=f"{which.replace('.', '')}.1") for which in (ref, other_ref)]
    batches = [batch_key(*one) for one in zip((tenant, other_tenant), claims, strict=True)]
    assert (batches[0] == batches[1]) == (
        (tenant, ref.replace(".", "")) == (other_tenant, other_ref.replace(".", ""))
    )
    assert batches[0] != keys.history_partition(other_tenant, other_job)
    system = {keys.watermark_key().pk, keys.shards_key().pk, keys.partition_lease_key(NOON, 0).pk}
    assert keys.receipt_key(tenant, job).pk not in system
    assert keys.receipt_key(tenant, job).pk != keys.run_index_partition(other_tenant, 0)


@given(parts, parts, parts)
def test_a_range_of_runs_holds_those_behind_one_and_up_to_another(
    after: str, run_id: str, before: str
) -> None:
    low, high = (bound.encode() for bound in keys.history_bounds(before, after))
    sk = keys.history_key("t", "j", run_id).sk.encode()
    assert (low <= sk <= high) == (after < run_id <= before)
    low, high = (bound.encode() for bound in keys.history_bounds(None, None))
    assert low <= sk <= high
    assert not low <= keys.attempt_key("t", "j", run_id, 1, 1, True).sk.encode() <= high


@given(parts, parts)
def test_a_group_of_a_run_list_ends_where_later_ones_begin(one: str, other: str) -> None:
    row = keys.run_index_sort_key(other, "00ff").encode()
    assert (row <= keys.group_upper_bound(one).encode()) == (other <= one)


@given(moments)
def test_a_row_never_expires_before_its_moment(at: datetime) -> None:
    expires = EPOCH + timedelta(seconds=keys.to_ttl(at))
    assert at <= expires < at + timedelta(seconds=1)


def test_the_names_that_expressions_use_are_those_of_the_head() -> None:
    names = {
        keys.VERSION_ATTR,
        keys.WRITE_IDS_ATTR,
        keys.STATUS_ATTR,
        keys.RUNS_ATTR,
        keys.WAIT_QUEUE_ATTR,
        keys.RECENTLY_ENDED_ATTR,
    }
    assert names <= {field.encode_name for field in msgspec.structs.fields(JobState)}
