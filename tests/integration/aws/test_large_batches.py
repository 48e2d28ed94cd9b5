"""Many large payloads in one request: stored in parallel, and before their job states."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import EndpointConnectionError

from punctual.aws.clients import MAX_AWS_CONNECTIONS
from punctual.aws.retries import RetryPolicy
from punctual.aws.s3 import S3Blobs
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.engine.commands.definitions_store import MAX_INLINE_PAYLOAD_BYTES
from punctual.engine.ports.blobs import Blob
from tests.integration.aws.test_limits_aws import limited
from tests.support.aws.moto_adapter import Moto
from tests.support.deployed.drivers.api import an_api

LARGE = {
    "name": "large",
    "schedule_type": "FUTURE",  # one-time jobs may share a name
    "schedule_time": "2030-01-01T00:00:00Z",
    "payload": "x" * (MAX_INLINE_PAYLOAD_BYTES + 1),
}


class CannedS3:
    """Each call waits until `together` calls are in progress."""

    def __init__(self, together: int, refused: frozenset[str] = frozenset()) -> None:
        self._full = threading.Barrier(together)
        self._refused = refused
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.kept: set[str] = set()

    def put_object(self, Key: str, **_: Any) -> dict[str, Any]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._full.wait(10)
        with self._lock:
            self._now -= 1
            if Key in self._refused:
                raise EndpointConnectionError(endpoint_url="s3")
            self.kept.add(Key)
        return {}

    @property
    def under_way(self) -> int:
        return self._now


def blobs_of(client: CannedS3, pool: ThreadPool) -> S3Blobs:
    return S3Blobs(
        lambda: client, "bucket", RetryPolicy(lambda _: None, seed="test", tries=1), pool
    )


MANY = [Blob(f"payloads/{n}", b"{}", "application/json") for n in range(MAX_AWS_CONNECTIONS * 5)]


def test_payloads_are_stored_by_all_threads_of_the_pool() -> None:
    client, pool = CannedS3(MAX_AWS_CONNECTIONS), ThreadPool(MAX_AWS_CONNECTIONS)
    blobs_of(client, pool).put_many(MANY)
    pool.close()
    assert client.most == MAX_AWS_CONNECTIONS
    assert client.kept == {blob.name for blob in MANY}


def test_failed_payload_is_reported_after_all_calls_ended() -> None:
    client, pool = (
        CannedS3(MAX_AWS_CONNECTIONS, frozenset({"payloads/3"})),
        ThreadPool(MAX_AWS_CONNECTIONS),
    )
    failures = blobs_of(client, pool).put_many(MANY)
    assert [number for number, failure in enumerate(failures) if failure is not None] == [3]
    assert isinstance(failures[3], Unavailable)
    assert client.under_way == 0
    pool.close()
    assert client.kept == {blob.name for blob in MANY} - {"payloads/3"}


@contextmanager
def refusing_the(number: int, store: Moto) -> Iterator[None]:
    """Fail the put of the object with this number."""
    events, calls = store.clients.s3.meta.events, iter(range(1, 10_000))
    lock = threading.Lock()

    def refuse(**_: Any) -> None:
        with lock:
            if next(calls) == number:
                raise EndpointConnectionError(endpoint_url="s3")

    events.register("before-call.s3.PutObject", refuse)
    try:
        yield
    finally:
        events.unregister("before-call.s3.PutObject", refuse)


def test_batch_of_large_payloads_is_stored_without_reads() -> None:
    with an_api() as api:
        body = {"jobs": [{**LARGE, "payload": f"{n}{LARGE['payload']}"} for n in range(25)]}
        answers: list[Any] = []
        spent = api.store.spend(lambda: answers.append(api("POST", "/jobs/batch", body)))
        results = answers[0].json["results"]
        assert [result["status"] for result in results] == [202] * 25
        assert (spent["PutObject"], spent.get("GetObject", 0)) == (25, 0)
        job = api("GET", f"/jobs/{results[7]['job_id']}").json
        assert job["payload"] == body["jobs"][7]["payload"]
        single = api("POST", "/jobs", LARGE)
        assert (single.status, single.json["payload"]) == (202, LARGE["payload"])


def test_failed_payload_creates_no_job_of_the_batch() -> None:
    with an_api() as api:
        with refusing_the(13, api.store):
            answer = api("POST", "/jobs/batch", {"jobs": [LARGE] * 25})
        assert answer.status == 503
        assert api("GET", "/jobs").json["jobs"] == []
        assert api.store.rows("timers") == []


def test_payload_of_job_over_quota_is_not_stored() -> None:
    with limited("jobs=2") as (api, _):
        answers: list[Any] = []
        body = {"jobs": [LARGE] * 5}
        spent = api.store.spend(lambda: answers.append(api("POST", "/jobs/batch", body)))
        assert [result["status"] for result in answers[0].json["results"]] == [
            202,
            202,
            429,
            429,
            429,
        ]
        assert spent["PutObject"] == 2
