"""Rows that timers share: small, complete, and in the order of their moments."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sizes import item_bytes
from punctual.aws.dynamodb.timers import keys
from punctual.aws.dynamodb.timers.rows import MAX_SHARED_ROW_BYTES, build_rows, parse_row
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON
from tests.support.examples import examples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
awkward = st.text(st.sampled_from("#$%ab0 !\x00é\U0001f600"), max_size=6)
long = st.integers(1, 250).map(lambda size: "t" * size)
parts = st.one_of(texts, awkward, long)
timers = st.builds(
    Timer,
    bucket=st.sampled_from([NOON, NOON + timedelta(minutes=1)]),
    shard=st.sampled_from([0, 1, 63]),
    at=st.sampled_from([NOON, NOON + timedelta(microseconds=1), NOON + timedelta(seconds=9)]),
    tenant=parts,
    job_id=parts,
    version=st.integers(0, 10**11),
)
many = st.lists(timers, max_size=60)
crowds = st.builds(
    lambda tenant, jobs: [Timer(NOON, 0, NOON, tenant, job, 1) for job in jobs],
    parts,
    st.lists(parts, max_size=60),
)


@settings(max_examples=examples(300))
@given(st.one_of(many, crowds))
def test_every_timer_stands_in_one_row_that_is_one_write_unit(some: list[Timer]) -> None:
    rows = list(build_rows(some, "0123456789ab"))
    assert sorted(timer for row in rows for timer in row.timers) == sorted(set(some))
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert len({timer[:3] for timer in row.timers}) == 1
        assert row.key.pk == keys.timer_key(*row.timers[0]).pk
        if len(row.timers) > 1:
            assert item_bytes(row.item()) <= MAX_SHARED_ROW_BYTES
        else:
            assert row.item() == keys.timer_key(*row.timers[0]).item()


@given(st.one_of(many, crowds))
def test_a_row_reads_back(some: list[Timer]) -> None:
    for row in build_rows(some, "5e"):
        found = parse_row(row.item())
        assert (found.key, list(found.timers)) == (row.key, list(row.timers))


@given(st.one_of(many, crowds))
def test_rows_hold_as_many_as_there_is_room_for(some: list[Timer]) -> None:
    """Two neighbours of one moment would not have fitted into one row, but for those too long."""
    rows = list(build_rows(some, "5e"))
    for row, following in pairwise(rows):
        if row.timers[0][:3] == following.timers[0][:3] and row.members:
            grown = row._replace(members=[*row.members, keys.member_text(*following.timers[0][3:])])
            assert item_bytes(grown.item()) > MAX_SHARED_ROW_BYTES


@given(many, many)
def test_rows_stand_in_the_order_of_their_moments_whoever_put_them(
    one: list[Timer], other: list[Timer]
) -> None:
    rows = [*build_rows(one, "aa"), *build_rows(other, "bb")]
    for place in {row.key.pk for row in rows}:
        mine = [row for row in rows if row.key.pk == place]
        mine.sort(key=lambda row: row.key.sk.encode())
        moments = [row.timers[0].at for row in mine]
        assert moments == sorted(moments)
        for row in mine:
            at = row.timers[0].at
            assert row.key.sk < keys.due_upper_bound(at)
            assert keys.time_of(row.key.sk) == at


@given(st.one_of(many, crowds), st.data())
def test_a_job_stands_in_no_row_behind_its_own_place(
    some: list[Timer], data: st.DataObject
) -> None:
    rows = list(build_rows(some, "5e"))
    if not rows:
        return
    asked = data.draw(st.sampled_from(some))
    low, high = keys.job_bounds(asked.at, asked.tenant, asked.job_id)
    for row in rows:
        if asked in row.timers:
            assert low.encode() <= row.key.sk.encode() <= high.encode()


def test_twenty_of_a_usual_name_share_a_row() -> None:
    job = "01939f6a-7b12-7000-8000-{:012d}"
    some = [Timer(NOON, 0, NOON, "acme", job.format(n), 7) for n in range(100)]
    assert [len(row.timers) for row in build_rows(some, "0123456789ab")] == [20] * 5
