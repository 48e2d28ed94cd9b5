"""Faults at any point of a request: a request by the client is carried out once."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.running import run_node
from punctual.client import PreconditionFailed, Punctual, PunctualError, RateLimited, Unavailable
from tests.support.client.faults import Fault, Faulty
from tests.support.client.kinds import NO_DELAY, ClientKind, both_clients

NEVER: dict[str, Any] = {"schedule_type": "FUTURE", "schedule_time": "2199-01-01T00:00:00Z"}
NUMBERS = count()
faults = st.lists(st.sampled_from(Fault), max_size=8)


class World:
    """A node, a client without faults, and a job and a run for the requests."""

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


class Request:
    """A request that creates objects. `created_ids` lists the objects that exist."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = f"once {next(NUMBERS)}."

    def send(self, access: ClientKind, key: str | None) -> Any:
        raise NotImplementedError

    def created_ids(self) -> list[str]:
        raise NotImplementedError


class OneJob(Request):
    def send(self, access: ClientKind, key: str | None) -> Any:
        creation = access.client.jobs.create(name=self.name, idempotency_key=key, **NEVER)
        return [access.do(creation).job_id]

    def created_ids(self) -> list[str]:
        return [job.job_id for job in self.world.client.jobs.list(name_prefix=self.name)]


class ManyJobs(OneJob):
    def send(self, access: ClientKind, key: str | None) -> Any:
        jobs = [{"name": f"{self.name}{n}", **NEVER} for n in range(3)]
        batch = access.do(access.client.jobs.create_many(jobs, idempotency_key=key))
        return list(reversed(batch.raise_for_declined().job_ids))


class OneRun(Request):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before = set(self._run_ids())

    def send(self, access: ClientKind, key: str | None) -> Any:
        payload = {"name": self.name}
        run = access.client.jobs.run(self.world.job, payload=payload, idempotency_key=key)
        return [access.do(run).run_id]

    def created_ids(self) -> list[str]:
        return [run_id for run_id in self._run_ids() if run_id not in self._before]

    def _run_ids(self) -> list[str]:
        return [run.run_id for run in self.world.client.runs.list(self.world.job)]


class OneRetry(OneRun):
    def send(self, access: ClientKind, key: str | None) -> Any:
        run = access.client.runs.retry(self.world.run, idempotency_key=key)
        return [access.do(run).run_id]


@both_clients
@pytest.mark.parametrize("request_type", [OneJob, ManyJobs, OneRun, OneRetry])
@settings(max_examples=30)
@given(faults=faults)
@example(faults=[Fault.SILENT])
@example(faults=[Fault.RESET] * 6)
@example(faults=[Fault.REFUSED] * 6)
@example(faults=[Fault.CUT, Fault.LIMITED] * 3)
def test_request_with_a_key_creates_its_objects_once(
    world: World, open_client: Any, request_type: Callable[[World], Request], faults: list[Fault]
) -> None:
    request = request_type(world)
    network = Faulty(world.direct, faults)
    with open_client(world.url, transport=network.transport, retries=NO_DELAY) as access:
        answered, error = _answer_or_error(lambda: request.send(access, None))
        if error is not None:
            assert len(network.met) == NO_DELAY.attempts
            assert bool(request.created_ids()) == network.done
            assert error.uncertain == (not network.certain)
            # A repeat with the key of the failed request returns the existing objects.
            answered = request.send(access, error.idempotency_key)
    assert answered == request.created_ids()


@both_clients
@settings(max_examples=30)
@given(faults=faults)
def test_request_without_a_key_is_carried_out_at_most_once(
    world: World, open_client: Any, faults: list[Fault]
) -> None:
    name = f"token {next(NUMBERS)}"
    network = Faulty(world.direct, faults)
    with open_client(world.url, transport=network.transport, retries=NO_DELAY) as access:
        create = access.client.tokens.create
        answered, error = _answer_or_error(lambda: access.do(create(name=name, role="viewer")))
    token_ids = [token.token_id for token in world.client.tokens.list() if token.name == name]
    assert len(token_ids) == network.done
    if error is None:
        assert token_ids == [answered.token_id]
    else:
        assert error.uncertain == (not network.certain)


@both_clients
@settings(max_examples=30)
@given(faults=faults)
@example(faults=[Fault.SILENT])
def test_update_for_one_version_is_made_once(
    world: World, open_client: Any, faults: list[Fault]
) -> None:
    job = world.client.jobs.create(name=f"version {next(NUMBERS)}", **NEVER)
    network = Faulty(world.direct, faults)
    with open_client(world.url, transport=network.transport, retries=NO_DELAY) as access:
        update = access.client.jobs.update
        answered, error = _answer_or_error(
            lambda: access.do(update(job, priority="HIGH", if_match=job))
        )
    stored_job = world.client.jobs.get(job)
    assert stored_job.version == 1 + network.done
    if error is None:
        assert answered == stored_job
    else:
        # The new version may come from this update, and the error says so.
        assert error.uncertain == (not network.certain)
        assert isinstance(error, PreconditionFailed) <= error.uncertain


def _answer_or_error(send: Callable[[], Any]) -> tuple[Any, PunctualError | None]:
    try:
        return send(), None
    except (Unavailable, RateLimited, PreconditionFailed) as error:
        return None, error
