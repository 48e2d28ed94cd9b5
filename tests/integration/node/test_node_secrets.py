"""Secrets on the node: over HTTP, in runs, and with lost or changed files."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.engine.commands.secrets import Secrets
from punctual.engine.ports.audit_log import Actor
from punctual.node.features import NODE_FEATURES
from punctual.node.files.data_folder import DATABASE, StoreError
from punctual.node.files.secret_key import SECRET_KEY_FILE
from punctual.node.sqlite.store import Store
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world

VALUE = "correct horse battery"


class Echo:
    """A task that answers its body, in the output and in the log."""

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        body = str(attempt.task["body"])
        if body.startswith("fail"):
            return Outcome.failed(f"the server answered {body}", retryable=False)
        return Outcome("SUCCESS", output=body.encode(), output_type=f"text/plain; a={body}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.node.running_tasks._attempt_runner = AttemptRunner(
            {"http": Echo()}, world.store.find_secret
        )
        yield world


def put(world: World, name: str, value: str, tenant: str = T) -> None:
    secrets = Secrets(world.store.secrets, world.store.audit)
    world.do(lambda: secrets.set(tenant, name, value, Actor("me"), world.clock()))


def run_http(world: World, body: str, **fields: Any) -> Any:
    """Run an http job once and return its run."""
    task = {"type": "http", "url": "https://example.com/", "body": body}
    job = world.submit(task=task, **fields)
    world.node.step()
    world.settle()
    return world.runs(job)[0]


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_node_offers_secrets() -> None:
    assert NODE_FEATURES.secrets


def test_run_gets_the_secret_and_no_file_of_the_node_holds_it(world: World) -> None:
    put(world, "bank", VALUE)
    succeeded = run_http(world, "token {{secret:bank}}!")
    failed = run_http(world, "fail {{secret:bank}}", max_retries=0)
    assert succeeded.run.status == "SUCCESS"
    assert failed.detail.error == "the server answered fail [secret]"
    written = stored_bytes(world.folder)
    assert b"token [secret]!" in written
    assert VALUE.encode() not in written
    assert VALUE not in repr(world.lines)


def test_changed_secret_is_used_by_the_next_run(world: World) -> None:
    put(world, "bank", "fail first")
    assert run_http(world, "{{secret:bank}}", max_retries=0).run.status == "FAILED"
    put(world, "bank", "second")
    assert run_http(world, "{{secret:bank}}", max_retries=0).run.status == "SUCCESS"


def test_missing_secret_fails_the_run_without_a_retry_and_is_named(world: World) -> None:
    put(world, "bank", VALUE, tenant="globex")
    view = run_http(world, "{{secret:bank}}", max_retries=3)
    assert (view.run.status, view.run.attempt) == ("FAILED", 1)
    assert view.detail.error == "There is no secret named 'bank'"


def test_changed_row_fails_the_run_and_names_the_secret(world: World) -> None:
    put(world, "bank", VALUE)
    with sqlite3.connect(world.folder / DATABASE) as db:
        db.execute("UPDATE secrets SET value = zeroblob(40)")
    view = run_http(world, "{{secret:bank}}", max_retries=0)
    assert view.run.status == "FAILED"
    assert view.detail.error.startswith("The secret 'bank' cannot be decrypted")


def test_row_of_another_tenant_does_not_decrypt(world: World) -> None:
    put(world, "bank", VALUE, tenant="globex")
    with sqlite3.connect(world.folder / DATABASE) as db:
        db.execute("UPDATE secrets SET tenant = ?", (T,))
    view = run_http(world, "{{secret:bank}}", max_retries=0)
    assert view.detail.error.startswith("The secret 'bank' cannot be decrypted")


def test_event_task_gets_the_secret_in_the_commit_that_publishes_it(world: World) -> None:
    put(world, "kind", "Paid")
    job = world.submit(task={"type": "event", "detail_type": "{{secret:kind}}"})
    missing = world.submit(task={"type": "event", "detail_type": "{{secret:none}}"})
    world.until(10)
    assert (world.statuses(job), world.statuses(missing)) == (["SUCCESS"], ["FAILED"])
    (event,) = [event for _, event in world.store.feed.read(0, 100)]
    assert event["detail-type"] == "Paid"
    assert world.runs(missing)[0].detail.error == "There is no secret named 'none'"


def test_start_without_the_key_of_secrets_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path, ManualClock(NOON))
    store.secrets.check_key()
    assert not (tmp_path / SECRET_KEY_FILE).exists(), "a node without secrets needs no key"
    store.secrets.put(T, "bank", VALUE, "me", NOON)
    store.close()
    key = (tmp_path / SECRET_KEY_FILE).read_bytes()
    (tmp_path / SECRET_KEY_FILE).unlink()
    store = Store.open(tmp_path, ManualClock(NOON))
    with pytest.raises(StoreError, match=r"secrets\.key is missing, and the database holds"):
        store.secrets.check_key()
    (tmp_path / SECRET_KEY_FILE).write_bytes(b"short")
    with pytest.raises(StoreError, match="has 5 bytes, not 32"):
        store.secrets.check_key()
    (tmp_path / SECRET_KEY_FILE).write_bytes(key)
    store.secrets.check_key()
    assert store.find_secret(T, "bank") == VALUE
    store.close()


def test_new_key_keeps_the_list_and_each_secret_can_be_set_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path, ManualClock(NOON))
    for name in ("a", "b"):
        store.secrets.put(T, name, VALUE, "me", NOON)
    store.close()
    (tmp_path / SECRET_KEY_FILE).write_bytes(bytes(range(32)))
    store = Store.open(tmp_path, ManualClock(NOON))
    store.secrets.check_key()
    store.secrets.put(T, "a", "again", "me", NOON)
    assert [secret.name for secret in store.secrets.list(T)] == ["a", "b"]
    assert store.find_secret(T, "a") == "again"
    with pytest.raises(Unavailable, match="'b' cannot be decrypted"):
        store.find_secret(T, "b")
    store.close()


def test_crash_between_key_and_row_leaves_a_key_that_the_next_secret_uses(tmp_path: Path) -> None:
    store = Store.open(tmp_path, ManualClock(NOON))

    def crash_before_the_commit() -> None:
        with store.transaction():
            store.secrets.put(T, "bank", VALUE, "me", NOON)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash_before_the_commit()
    store.close()
    key = (tmp_path / SECRET_KEY_FILE).read_bytes()
    store = Store.open(tmp_path, ManualClock(NOON))
    store.secrets.check_key()
    assert store.secrets.list(T) == []
    store.secrets.put(T, "bank", VALUE, "me", NOON)
    assert (tmp_path / SECRET_KEY_FILE).read_bytes() == key
    assert store.find_secret(T, "bank") == VALUE
    store.close()


def test_run_waits_while_the_database_cannot_be_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, "bank", VALUE)
    real = sqlite3.connect

    def out_of_files(*_: Any, **__: Any) -> Any:
        return real("file:/nothing/here?mode=ro", uri=True)

    monkeypatch.setattr("punctual.node.sqlite.secrets.sqlite3.connect", out_of_files)
    view = run_http(world, "{{secret:bank}}", max_retries=0)
    assert (view.run.status, view.run.attempt) == ("WAITING", 1)
    monkeypatch.undo()
    world.until(60)
    world.settle()
    assert world.statuses(view.job_id) == ["SUCCESS"]
