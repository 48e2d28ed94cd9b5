"""Keys: they name one thing each, can be read back, and sort as what they are made of."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.history.batch_outcomes import batch_key
from punctual.aws.dynamodb.sort_keys import (
    escape,
    joined,
    moment,
    number,
    parse_moment,
    parted,
    unescape,
)
from punctual.aws.dynamodb.timers import keys as timer_keys
from punctual.domain.identifiers import EPOCH
from punctual.domain.job_state import JobState
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
    assert parted(joined(*some)) == some


@given(st.lists(parts, min_size=3, max_size=3), st.lists(parts, min_size=3, max_size=3))
def test_keys_sort_as_the_tuples_of_their_parts(one: list[str], other: list[str]) -> None:
    first, second = joined(*one).encode(), joined(*other).encode()
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


@given(moments, moments)
def test_the_order_of_moments_is_the_order_of_time(one: datetime, other: datetime) -> None:
    assert (moment(one) < moment(other)) == (one < other)
    assert len(moment(one)) == len(moment(other))
    assert parse_moment(moment(one)) == one


def test_a_moment_in_another_zone_is_the_same_moment() -> None:
    at = datetime.fromisoformat("2026-12-01T12:00:00+02:00")
    assert moment(at) == "2026-12-01T10:00:00.000000Z"


@given(st.integers(-1, 10**9), st.integers(-1, 10**9))
def test_the_order_of_numbers_is_the_order_of_their_text(one: int, other: int) -> None:
    assert (number(one) < number(other)) == (one < other)


@given(timers)
def test_a_timer_reads_back(timer: Timer) -> None:
    assert Timer(*timer_keys.parse_timer(timer_keys.timer(*timer))) == timer


@given(timers, timers)
def test_timers_of_one_place_sort_by_time_then_tenant_job_and_version(
    one: Timer, other: Timer
) -> None:
    other = other._replace(bucket=one.bucket, shard=one.shard)
    first, second = timer_keys.timer(*one), timer_keys.timer(*other)
    assert first.pk == second.pk
    assert (first.sk.encode() < second.sk.encode()) == (one.order < other.order)


@given(timers, timers)
def test_what_is_due_and_what_is_behind_a_timer_are_ranges(one: Timer, other: Timer) -> None:
    sk = timer_keys.timer(*other).sk
    assert (sk.encode() <= timer_keys.until_moment(one.at).encode()) == (other.at <= one.at)
    behind = sk.encode() >= timer_keys.behind(timer_keys.timer(*one).sk).encode()
    assert behind == (other.order > one.order)


@given(parts, parts.filter(bool))
def test_a_head_reads_back(tenant: str, job_id: str) -> None:
    assert keys.parse_head(keys.head(tenant, job_id)) == (tenant, job_id)


@given(parts, parts.filter(bool), parts, parts, parts.filter(bool), parts)
def test_rows_of_different_things_never_collide(
    tenant: str, job: str, ref: str, other_tenant: str, other_job: str, other_ref: str
) -> None:
    mine, others = (tenant, job, ref), (other_tenant, other_job, other_ref)
    same = mine == others
    assert (keys.body(*mine) == keys.body(*others)) == same
    assert (keys.run(*mine) == keys.run(*others)) == same
    tried = [keys.attempt(*which, 1, 1, False) for which in (mine, others)]
    assert (tried[0] == tried[1]) == same
    assert keys.head(tenant, job) != keys.body(other_tenant, other_job, other_ref)
    assert keys.run(tenant, job, ref).sk < keys.attempts(other_ref)
    claims = [a_run(nonce=f"{which.replace('.', '')}.1") for which in (ref, other_ref)]
    batches = [batch_key(*one) for one in zip((tenant, other_tenant), claims, strict=True)]
    assert (batches[0] == batches[1]) == (
        (tenant, ref.replace(".", "")) == (other_tenant, other_ref.replace(".", ""))
    )
    assert batches[0] != keys.job_runs(other_tenant, other_job)
    system = {keys.watermark().pk, keys.shards().pk, keys.bucket_lease(NOON, 0).pk}
    assert keys.receipt(tenant, job).pk not in system
    assert keys.receipt(tenant, job).pk != keys.run_list(other_tenant, 0)


@given(parts, parts, parts)
def test_a_range_of_runs_holds_those_behind_one_and_up_to_another(
    after: str, run_id: str, before: str
) -> None:
    low, high = (bound.encode() for bound in keys.runs_between(before, after))
    sk = keys.run("t", "j", run_id).sk.encode()
    assert (low <= sk <= high) == (after < run_id <= before)
    low, high = (bound.encode() for bound in keys.runs_between(None, None))
    assert low <= sk <= high
    assert not low <= keys.attempt("t", "j", run_id, 1, 1, True).sk.encode() <= high


@given(parts, parts)
def test_a_group_of_a_run_list_ends_where_later_ones_begin(one: str, other: str) -> None:
    row = keys.run_list_row(other, "00ff").encode()
    assert (row <= keys.until_group(one).encode()) == (other <= one)


@given(moments)
def test_a_row_never_expires_before_its_moment(at: datetime) -> None:
    expires = EPOCH + timedelta(seconds=keys.expiry(at))
    assert at <= expires < at + timedelta(seconds=1)


def test_the_names_that_expressions_use_are_those_of_the_head() -> None:
    names = {keys.VERSION, keys.WRITERS, keys.STATE, keys.RUNS, keys.LINE, keys.ENDED}
    assert names <= {field.encode_name for field in msgspec.structs.fields(JobState)}
