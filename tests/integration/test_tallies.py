"""What is counted is what happened, however its reader dies and whatever comes again."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest

from punctual.aws.calls import Patience
from punctual.aws.crew import Crew
from punctual.aws.dynamo import Dynamo
from punctual.aws.tallies import Change, Tallies
from tests.builders import NOON
from tests.integration.moto_adapter import Moto, moto

READERS = ((0, 5), (15,))  # by slots: Lambda reads a shard by several at a time
MORE, LESS = {"queued": 1}, {"queued": -1}


@pytest.fixture(scope="module")
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as found:
        yield found


@pytest.fixture(scope="module")
def tallies(aws: Moto) -> Tallies:
    dynamo = Dynamo(lambda: aws.clients.dynamodb, Crew(1), Patience(aws.slept.append, seed="t"))
    return Tallies(dynamo, aws.settings.control_table)


def test_what_is_new_is_counted_also_where_it_undoes_what_was_counted_before(
    tallies: Tallies,
) -> None:
    tallies.add_minute("undone", NOON, [Change(0, 1, MORE)])
    tallies.add_minute("undone", NOON, [Change(0, 1, MORE), Change(0, 2, LESS)])
    (minute,) = tallies.minutes("undone", NOON, NOON)
    assert minute.counts == {"queued": 0}


def test_what_comes_to_nothing_and_was_not_counted_before_writes_nothing(
    aws: Moto, tallies: Tallies
) -> None:
    both = [Change(0, 1, MORE), Change(0, 2, LESS)]
    assert aws.spend(lambda: tallies.add("nothing", both)) == {"BatchGetItem": 1}
    assert tallies.totals("nothing") == {}


def test_changes_that_each_change_no_count_ask_nothing(aws: Moto, tallies: Tallies) -> None:
    none = [Change(0, 1, {}), Change(0, 2, {"queued": 0})]
    assert aws.spend(lambda: tallies.add("none", none)) == {}


def test_what_is_ahead_of_all_that_was_counted_is_written_unread(
    aws: Moto, tallies: Tallies
) -> None:
    for place in (1, 2):
        change = Change(0, place, MORE)
        assert aws.spend(partial(tallies.add, "ahead", [change])) == {"UpdateItem": 1}


@pytest.mark.parametrize("seed", range(60))
def test_counts_are_the_sum_of_what_happened_however_it_is_cut_and_comes_again(
    tallies: Tallies, seed: int
) -> None:
    chance, tenant = random.Random(seed), f"walk{seed}"
    feeds = [_happened(chance, slots) for slots in READERS]
    truth: Counter[str] = Counter()
    for one in (change for feed in feeds for change in feed):
        truth.update(one.counts)
    while any(feeds):
        feed = chance.choice([feed for feed in feeds if feed])
        del feed[: _read(tallies, tenant, feed, chance)]
    assert _standing(tallies.totals(tenant)) == _standing(truth)


def _happened(chance: random.Random, slots: Sequence[int]) -> list[Change]:
    places = sorted(chance.sample(range(10**6), 15 * len(slots)))
    return [
        Change(chance.choice(slots), 10**20 + at, {chance.choice("abc"): chance.choice([-1, 1, 1])})
        for at in places
    ]


def _read(tallies: Tallies, tenant: str, feed: Sequence[Change], chance: random.Random) -> int:
    """As Lambda does with one that dies: again, the first half alone, or with more behind."""
    many = chance.randrange(1, 9)
    while True:
        died = chance.random() < 0.4
        tallies.add(tenant, feed[:many])
        if not died:
            return many
        ways = (many, many + 2, chance.randrange(1, many + 1))
        many = min(len(feed), chance.choice(ways))


def _standing(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
