"""Stores of secrets follow the same rules on the node and on AWS."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from punctual.aws.ports import build_dynamo_client
from punctual.aws.secret_store import SsmSecretStore
from punctual.aws.secrets import AwsSecrets, parameter_name
from punctual.domain.errors import Invalid, LimitExceeded, NotFound, Unavailable
from punctual.engine.commands.secrets import MAX_TENANT_SECRETS, Secrets
from punctual.engine.ports.audit_log import Actor, AuditFilters, AuditLog
from punctual.engine.ports.tenants.secret_store import SecretInfo, SecretStore
from punctual.identity import new_id
from punctual.node.sqlite.store import Store
from punctual.web.http.problems import problem_reply
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import lost_answers, refused, unreached
from tests.support.builders import NOON, ManualClock, after

FIND_TIME = 61.0  # seconds by which the cache of each read is older


class Stores(NamedTuple):
    changes: SecretStore
    find: Callable[[str, str], str]
    audit: AuditLog


class AgingClock:
    """A monotonic clock that makes each cached value too old."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += FIND_TIME
        return self.now


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(ManualClock(NOON)) as made:
        yield made


def ssm_store(made: Moto) -> SsmSecretStore:
    return SsmSecretStore(
        build_dynamo_client(made.clients),
        made.settings.control_table,
        lambda: made.clients.ssm,
        made.settings.stage,
        new_id(ManualClock(NOON)),
    )


def stored_value(made: Moto, name: str, tenant: str = "acme") -> str | None:
    try:
        answer = made.clients.ssm.get_parameter(
            Name=parameter_name(made.settings.stage, tenant, name), WithDecryption=True
        )
    except made.clients.ssm.exceptions.ParameterNotFound:
        return None
    return str(answer["Parameter"]["Value"])


@pytest.fixture(params=["aws", "embedded"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "aws":
        with moto(ManualClock(NOON)) as made:
            manager, parameters = made.clients.secretsmanager, made.clients.ssm
            reader = AwsSecrets(
                lambda: manager, lambda: parameters, made.settings.stage, AgingClock()
            )
            yield Stores(ssm_store(made), reader.get, made.ports.audit_log)
    else:
        store = Store.open(tmp_path / "data", ManualClock(NOON))
        yield Stores(store.secrets, store.find_secret, store.audit)
        store.close()


def names(stores: Stores, tenant: str = "acme") -> list[str]:
    return [secret.name for secret in stores.changes.list(tenant)]


@pytest.mark.parametrize(
    "value", ["s3cret", " é\u20ac\U0001f511\n", "x" * 4_096, "-----\nA\r\nB\n"]
)
def test_value_is_found_as_it_was_put(stores: Stores, value: str) -> None:
    stores.changes.put("acme", "bank", value, "ci", NOON)
    assert stores.find("acme", "bank") == value


def test_list_shows_who_and_when_sorted_by_name(stores: Stores) -> None:
    stores.changes.put("acme", "b", "1", "first", NOON)
    stores.changes.put("acme", "a.B-c_9", "2", "first", after(1))
    stores.changes.put("acme", "b", "3", "second", after(2))
    assert stores.changes.list("acme") == [
        SecretInfo("a.B-c_9", after(1), after(1), "first"),
        SecretInfo("b", NOON, after(2), "second"),
    ]
    assert stores.find("acme", "b") == "3"


def test_secret_of_another_tenant_is_neither_listed_nor_found(stores: Stores) -> None:
    stores.changes.put("acme", "bank", "ours", "ci", NOON)
    stores.changes.put("globex", "bank", "theirs", "ci", NOON)
    stores.changes.put("acme-2", "more", "other", "ci", NOON)
    assert names(stores) == ["bank"]
    assert stores.find("globex", "bank") == "theirs"
    assert stores.changes.delete("globex", "bank")
    assert not stores.changes.delete("acme", "more")
    assert stores.find("acme", "bank") == "ours"
    for tenant, name in [("globex", "bank"), ("acm", "bank"), ("acme", "more"), ("", "bank")]:
        with pytest.raises(KeyError):
            stores.find(tenant, name)


def test_deleted_secret_is_gone_until_it_is_put_again(stores: Stores) -> None:
    stores.changes.put("acme", "bank", "old", "ci", NOON)
    assert stores.changes.delete("acme", "bank")
    assert not stores.changes.delete("acme", "bank")
    assert names(stores) == []
    with pytest.raises(KeyError):
        stores.find("acme", "bank")
    stores.changes.put("acme", "bank", "new", "ci", after(9))
    assert stores.changes.list("acme") == [SecretInfo("bank", after(9), after(9), "ci")]
    assert stores.find("acme", "bank") == "new"


def test_commands_write_notes_without_values(stores: Stores) -> None:
    secrets = Secrets(stores.changes, stores.audit)
    secrets.set("acme", "bank", "hush-hush", Actor("ci", request_id="1"), NOON)
    secrets.delete("acme", "bank", Actor("ci", request_id="2"), NOON)
    page = stores.audit.page("acme", AuditFilters(), 9, None, NOON + timedelta(hours=1))
    noted = {(entry.note.action, str(entry.note.before or entry.note.after)) for entry in page[0]}
    assert noted == {
        ("secret.set", "{'secret': 'bank'}"),
        ("secret.delete", "{'secret': 'bank'}"),
    }
    assert "hush" not in repr(page)


def test_missing_secret_cannot_be_deleted_and_leaves_no_note(stores: Stores) -> None:
    secrets = Secrets(stores.changes, stores.audit)
    with pytest.raises(NotFound, match="There is no such secret"):
        secrets.delete("acme", "bank", Actor("ci"), NOON)
    assert not stores.audit.page("acme", AuditFilters(), 9, None, NOON).entries


def test_tenant_has_a_bounded_number_of_secrets(stores: Stores) -> None:
    secrets = Secrets(stores.changes, stores.audit)
    for number in range(MAX_TENANT_SECRETS):
        stores.changes.put("acme", f"n{number}", "v", "ci", NOON)
    with pytest.raises(LimitExceeded, match="at most 200 secrets"):
        secrets.set("acme", "one-more", "v", Actor("ci"), NOON)
    secrets.set("acme", "n7", "changed", Actor("ci"), NOON)
    secrets.set("globex", "first", "v", Actor("ci"), NOON)
    assert stores.find("acme", "n7") == "changed"
    assert len(names(stores)) == MAX_TENANT_SECRETS


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
@pytest.mark.parametrize("fault", [lost_answers, unreached])
def test_repeated_write_of_a_row_leaves_one_listed_secret(
    aws: Moto, operation: str, fault: Any
) -> None:
    store = ssm_store(aws)
    with fault(aws.clients.dynamodb, operation, 1):
        store.put("acme", "bank", "1", "ci", NOON)
    with fault(aws.clients.dynamodb, operation, 1):
        store.put("acme", "bank", "2", "ci", after(1))
    assert store.list("acme") == [SecretInfo("bank", NOON, after(1), "ci")]
    assert stored_value(aws, "bank") == "2"


def test_put_that_crashes_before_the_value_is_listed_and_can_be_repeated(aws: Moto) -> None:
    store = ssm_store(aws)
    with unreached(aws.clients.ssm, "PutParameter", 9), pytest.raises(Unavailable):
        store.put("acme", "bank", "1", "ci", NOON)
    assert [secret.name for secret in store.list("acme")] == ["bank"]
    assert stored_value(aws, "bank") is None
    store.put("acme", "bank", "1", "ci", after(1))
    assert store.list("acme") == [SecretInfo("bank", NOON, after(1), "ci")]


def test_change_that_fails_keeps_the_former_time_and_value(aws: Moto) -> None:
    store = ssm_store(aws)
    store.put("acme", "bank", "1", "first", NOON)
    with unreached(aws.clients.ssm, "PutParameter", 9), pytest.raises(Unavailable):
        store.put("acme", "bank", "2", "second", after(1))
    assert store.list("acme") == [SecretInfo("bank", NOON, NOON, "first")]
    assert stored_value(aws, "bank") == "1"


def test_delete_that_crashes_before_the_row_is_listed_and_can_be_repeated(aws: Moto) -> None:
    store = ssm_store(aws)
    store.put("acme", "bank", "1", "ci", NOON)
    with (
        refused(aws.clients.dynamodb, "TransactWriteItems", 9, "InternalServerError", 500),
        pytest.raises(Unavailable, match="at the same time: try again"),
    ):
        store.delete("acme", "bank")
    assert [secret.name for secret in store.list("acme")] == ["bank"]
    assert stored_value(aws, "bank") is None
    assert store.delete("acme", "bank")
    assert store.list("acme") == []


def test_delete_during_a_put_leaves_no_value_that_the_list_hides(aws: Moto) -> None:
    """The delete ends between the parameter and the confirmation of the put. The put repeats."""
    store, other = ssm_store(aws), ssm_store(aws)
    store.put("acme", "bank", "1", "ci", NOON)
    deletions: list[bool] = []

    def delete_once(**_: Any) -> None:
        if not deletions:
            deletions.append(True)
            deletions.append(other.delete("acme", "bank"))

    aws.clients.ssm.meta.events.register("after-call.ssm.PutParameter", delete_once)
    store.put("acme", "bank", "2", "ci", after(1))
    assert deletions == [True, True]
    assert store.list("acme") == [SecretInfo("bank", after(1), after(1), "ci")]
    assert stored_value(aws, "bank") == "2"


def test_put_during_a_delete_is_not_lost_from_the_list(aws: Moto) -> None:
    """The put ends between the parameter and the row of the delete. The delete repeats."""
    store, other = ssm_store(aws), ssm_store(aws)
    store.put("acme", "bank", "1", "ci", NOON)
    puts: list[int] = []

    def put_once(**_: Any) -> None:
        if not puts:
            puts.append(1)
            other.put("acme", "bank", "2", "ci", after(1))

    aws.clients.ssm.meta.events.register("after-call.ssm.DeleteParameter", put_once)
    assert store.delete("acme", "bank")
    assert puts == [1]
    assert store.list("acme") == []
    assert stored_value(aws, "bank") is None


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("ThrottlingException", Unavailable, 503),
        ("TooManyUpdates", Unavailable, 503),
        ("InternalServerError", Unavailable, 503),
        ("ParameterLimitExceeded", LimitExceeded, 429),
        ("ValidationException", Invalid, 422),
    ],
)
def test_refusal_of_ssm_has_a_status_and_a_time_to_retry(
    aws: Moto, code: str, kind: type[Exception], status: int
) -> None:
    store = ssm_store(aws)
    with refused(aws.clients.ssm, "PutParameter", 9, code, 400), pytest.raises(kind) as caught:
        store.put("acme", "bank", "hush", "ci", NOON)
    error: Any = caught.value
    reply = problem_reply(error, "id")
    assert reply.status == status
    assert ("retry-after" in dict(reply.headers)) is (status in (429, 503))
    assert "hush" not in str(error)


def test_parameter_that_an_operator_stored_is_replaced(aws: Moto) -> None:
    aws.clients.ssm.put_parameter(
        Name=parameter_name(aws.settings.stage, "acme", "bank"),
        Value="by hand",
        Type="SecureString",
    )
    store = ssm_store(aws)
    assert store.list("acme") == []
    store.put("acme", "bank", "by the API", "ci", NOON)
    assert stored_value(aws, "bank") == "by the API"


def test_node_reads_secrets_in_other_threads(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    try:
        store.secrets.put("acme", "bank", "1", "ci", NOON)
        values: list[str] = []
        threads = [
            threading.Thread(target=lambda: values.append(store.find_secret("acme", "bank")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert values == ["1"] * 8
    finally:
        store.close()
