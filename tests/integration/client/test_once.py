"""Whatever goes wrong on the way, and at which point: what was ordered once is there once."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.running import run_node
from punctual.client import PreconditionFailed, Punctual, PunctualError, RateLimited, Unavailable
from tests.support.client_faults import Fault, Faulty
from tests.support.client_ways import AT_ONCE, Way, both_ways

NEVER: dict[str, Any] = {"schedule_type": "FUTURE", "schedule_time": "2199-01-01T00:00:00Z"}
NUMBERS = count()
faults = st.lists(st.sampled_from(Fault), max_size=8)


class World:
    """A node, a way to it that does not fail, and what to look for in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.direct = httpx.Client(timeout=10.0)
        self.client = Punctual(url)
        self.job = self.client.jobs.create(name="orders", **NEVER)
        done = self.client.jobs.run(self.job, wait=True, timeout=10)
        self.run = done.raise_for_outcome()

    def close(self) -> None:
        self.client.close()
        self.direct.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with run_node(tmp_path_factory.mktemp("once") / "data") as node:
        world = World(f"http://127.0.0.1:{node.port}/v1")
        yield world
        world.close()


class Order:
    """Something that makes one thing; `made` counts what there is of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = f"once {next(NUMBERS)}."

    def ask(self, way: Way, key: str | None) -> Any:
        raise NotImplementedError

    def made(self) -> list[str]:
        raise NotImplementedError


class OneJob(Order):
    def ask(self, way: Way, key: str | None) -> Any:
        made = way.client.jobs.create(name=self.name, idempotency_key=key, **NEVER)
        return [way.do(made).job_id]

    def made(self) -> list[str]:
        return [job.job_id for job in self.world.client.jobs.list(name_prefix=self.name)]


class ManyJobs(OneJob):
    def ask(self, way: Way, key: str | None) -> Any:
        jobs = [{"name": f"{self.name}{n}", **NEVER} for n in range(3)]
        batch = way.do(way.client.jobs.create_many(jobs, idempotency_key=key))
        return list(reversed(batch.raise_for_declined().job_ids))


class OneRun(Order):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before = set(self._there())

    def ask(self, way: Way, key: str | None) -> Any:
        payload = {"name": self.name}
        run = way.client.jobs.run(self.world.job, payload=payload, idempotency_key=key)
        return [way.do(run).run_id]

    def made(self) -> list[str]:
        return [run_id for run_id in self._there() if run_id not in self._before]

    def _there(self) -> list[str]:
        return [run.run_id for run in self.world.client.runs.list(self.world.job)]


class OneRetry(OneRun):
    def ask(self, way: Way, key: str | None) -> Any:
        run = way.client.runs.retry(self.world.run, idempotency_key=key)
        return [way.do(run).run_id]


@both_ways
@pytest.mark.parametrize("order", [OneJob, ManyJobs, OneRun, OneRetry])
@settings(max_examples=30)
@given(faults=faults)
@example(faults=[Fault.SILENT])
@example(faults=[Fault.RESET] * 6)
@example(faults=[Fault.REFUSED] * 6)
@example(faults=[Fault.CUT, Fault.LIMITED] * 3)
def test_what_is_ordered_is_there_once(
    world: World, opened: Any, order: Callable[[World], Order], faults: list[Fault]
) -> None:
    wanted = order(world)
    network = Faulty(world.direct, faults)
    with opened(world.url, transport=network.transport, retries=AT_ONCE) as way:
        answered, error = _tried(lambda: wanted.ask(way, None))
        if error is not None:
            assert len(network.met) == AT_ONCE.attempts
            assert bool(wanted.made()) == network.done
            assert error.uncertain == (not network.certain)
            # Whoever asks again with the key of what failed is answered what is there.
            answered = wanted.ask(way, error.idempotency_key)
    assert answered == wanted.made()


@both_ways
@settings(max_examples=30)
@given(faults=faults)
def test_what_cannot_be_repeated_safely_is_done_once_at_most(
    world: World, opened: Any, faults: list[Fault]
) -> None:
    name = f"token {next(NUMBERS)}"
    network = Faulty(world.direct, faults)
    with opened(world.url, transport=network.transport, retries=AT_ONCE) as way:
        ask = way.client.tokens.create
        answered, error = _tried(lambda: way.do(ask(name=name, role="viewer")))
    made = [one.token_id for one in world.client.tokens.list() if one.name == name]
    assert len(made) == network.done
    if error is None:
        assert made == [answered.token_id]
    else:
        assert error.uncertain == (not network.certain)


@both_ways
@settings(max_examples=30)
@given(faults=faults)
@example(faults=[Fault.SILENT])
def test_a_change_for_one_version_is_made_once(
    world: World, opened: Any, faults: list[Fault]
) -> None:
    job = world.client.jobs.create(name=f"version {next(NUMBERS)}", **NEVER)
    network = Faulty(world.direct, faults)
    with opened(world.url, transport=network.transport, retries=AT_ONCE) as way:
        update = way.client.jobs.update
        answered, error = _tried(lambda: way.do(update(job, priority="HIGH", if_match=job)))
    found = world.client.jobs.get(job)
    assert found.version == 1 + network.done
    if error is None:
        assert answered == found
    else:
        # That the version is another by now may be its own doing, and it says so.
        assert error.uncertain == (not network.certain)
        assert isinstance(error, PreconditionFailed) <= error.uncertain


def _tried(ask: Callable[[], Any]) -> tuple[Any, PunctualError | None]:
    try:
        return ask(), None
    except (Unavailable, RateLimited, PreconditionFailed) as error:
        return None, error
