"""Shared timer rows are small, complete, and in the order of their times."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.cost.sizes import item_bytes
from punctual.aws.dynamodb.timers import keys
from punctual.aws.dynamodb.timers.rows import MAX_SHARED_ROW_BYTES, build_rows, parse_row
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON
from tests.support.examples import examples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
awkward = st.text(st.sampled_from("#$%ab0 !\x00é\U0001f600"), max_size=6)
long_texts = st.integers(1, 250).map(lambda size: "t" * size)
parts = st.one_of(texts, awkward, long_texts)
timers = st.builds(
    Timer,
    bucket=st.sampled_from([NOON, NOON + timedelta(minutes=1)]),
    shard=st.sampled_from([0, 1, 63]),
    at=st.sampled_from([NOON, NOON + timedelta(microseconds=1), NOON + timedelta(seconds=9)]),
    tenant=parts,
    job_id=parts,
    version=st.integers(0, 10**11),
)
timer_lists = st.lists(timers, max_size=60)
same_time_lists = st.builds(
    lambda tenant, jobs: [Timer(NOON, 0, NOON, tenant, job, 1) for job in jobs],
    parts,
    st.lists(parts, max_size=60),
)


@settings(max_examples=examples(300))
@given(st.one_of(timer_lists, same_time_lists))
def test_every_timer_is_in_one_row_of_one_write_unit(drawn_timers: list[Timer]) -> None:
    rows = list(build_rows(drawn_timers, "0123456789ab"))
    assert sorted(timer for row in rows for timer in row.timers) == sorted(set(drawn_timers))
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert len({timer[:3] for timer in row.timers}) == 1
        assert row.key.pk == keys.timer_key(*row.timers[0]).pk
        if len(row.timers) > 1:
            assert item_bytes(row.item()) <= MAX_SHARED_ROW_BYTES
        else:
            assert row.item() == keys.timer_key(*row.timers[0]).item()


@given(st.one_of(timer_lists, same_time_lists))
def test_timer_row_round_trips(drawn_timers: list[Timer]) -> None:
    for row in build_rows(drawn_timers, "5e"):
        parsed = parse_row(row.item())
        assert (parsed.key, list(parsed.timers)) == (row.key, list(row.timers))


@given(st.one_of(timer_lists, same_time_lists))
def test_timer_rows_are_filled_up(drawn_timers: list[Timer]) -> None:
    """Two adjacent rows of one time do not fit into one row, except for oversized timers."""
    rows = list(build_rows(drawn_timers, "5e"))
    for row, next_row in pairwise(rows):
        if row.timers[0][:3] == next_row.timers[0][:3] and row.members:
            larger = row._replace(members=[*row.members, keys.member_text(*next_row.timers[0][3:])])
            assert item_bytes(larger.item()) > MAX_SHARED_ROW_BYTES


@given(timer_lists, timer_lists)
def test_timer_rows_of_two_writers_sort_by_time(
    first_timers: list[Timer], second_timers: list[Timer]
) -> None:
    rows = [*build_rows(first_timers, "aa"), *build_rows(second_timers, "bb")]
    for partition in {row.key.pk for row in rows}:
        partition_rows = [row for row in rows if row.key.pk == partition]
        partition_rows.sort(key=lambda row: row.key.sk.encode())
        times = [row.timers[0].at for row in partition_rows]
        assert times == sorted(times)
        for row in partition_rows:
            at = row.timers[0].at
            assert row.key.sk < keys.due_upper_bound(at)
            assert keys.time_of(row.key.sk) == at


@given(st.one_of(timer_lists, same_time_lists), st.data())
def test_timer_row_lies_within_the_bounds_of_its_jobs(
    drawn_timers: list[Timer], data: st.DataObject
) -> None:
    rows = list(build_rows(drawn_timers, "5e"))
    if not rows:
        return
    timer = data.draw(st.sampled_from(drawn_timers))
    low, high = keys.job_bounds(timer.at, timer.tenant, timer.job_id)
    for row in rows:
        if timer in row.timers:
            assert low.encode() <= row.key.sk.encode() <= high.encode()


def test_twenty_usual_timers_share_a_row() -> None:
    job = "01939f6a-7b12-7000-8000-{:012d}"
    drawn_timers = [Timer(NOON, 0, NOON, "acme", job.format(number), 7) for number in range(100)]
    assert [len(row.timers) for row in build_rows(drawn_timers, "0123456789ab")] == [20] * 5
