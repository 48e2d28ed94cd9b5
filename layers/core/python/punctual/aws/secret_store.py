"""The secrets of the API on AWS: values in SSM, and one row for each in the control table.

The list reads only rows, so the functions of the API need no right to read a value. A row exists
before its parameter and until after it, so the list hides no secret:

1. A put reserves the row with a write id, puts the parameter, and confirms the row.
2. A delete deletes the parameter, then the row if no put has changed it.

Each step on a row is conditional. A call that loses one begins again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout
from punctual.aws.retries import Client, ConditionFailed, call_aws, error_code
from punctual.aws.secrets import parameter_name
from punctual.domain.errors import FieldError, Invalid, LimitExceeded, Unavailable
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.tenants.secret_store import SecretInfo

SECRET_LIST_KEY_PATTERN = "*#secrets"  # pattern of the partition keys of these rows
MAX_SECRET_WRITES = 5  # tries of a call that meets concurrent changes
_SECRET_PAGE_SIZE = 500  # rows in a query page, more than a tenant may have
_FULL_ACCOUNT_RETRY_SECONDS = 60.0
_NAME_ATTR, _CREATED_AT_ATTR, _UPDATED_AT_ATTR = "name", "made", "updated"
_UPDATED_BY_ATTR, _WRITE_ID_ATTR = "by", "write"


class SsmSecretStore:
    def __init__(
        self, dynamo: DynamoClient, table: str, parameters: Client, stage: str, new_id: NewId
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._parameters = parameters
        self._stage = stage
        self._new_id = new_id

    def list(self, tenant: str) -> Sequence[SecretInfo]:
        key_range = KeyRange(_partition(tenant))
        rows = self._dynamo.query(self._table, key_range, _SECRET_PAGE_SIZE)
        return sorted(_parse(check_layout(row)) for row in rows)

    def put(self, tenant: str, name: str, value: str, caller: str, now: datetime) -> None:
        for _ in range(MAX_SECRET_WRITES):
            write_id = self._reserve(tenant, name, caller, now)
            if write_id is None:
                continue
            self._put_parameter(tenant, name, value)
            if self._confirm(tenant, name, write_id, caller, now):
                return
        raise _conflict_error(name)

    def delete(self, tenant: str, name: str) -> bool:
        for _ in range(MAX_SECRET_WRITES):
            row = self._row(tenant, name)
            if row is None:
                return False
            self._delete_parameter(tenant, name)
            if self._delete_row(row):
                return True
        raise _conflict_error(name)

    def _reserve(self, tenant: str, name: str, caller: str, now: datetime) -> str | None:
        """Mark the row with a new write id and return the id, or None after a lost race.

        The times of an existing row change only once the parameter has its new value.
        """
        row, write_id = self._row(tenant, name), self._new_id()
        if row is None:
            new_row = {
                **_row_key(tenant, name).item(),
                **keys.ROW_LAYOUT_ATTRIBUTE,
                **to_item(
                    {
                        _NAME_ATTR: name,
                        _CREATED_AT_ATTR: keys.time_key(now),
                        _UPDATED_AT_ATTR: keys.time_key(now),
                        _UPDATED_BY_ATTR: caller,
                        _WRITE_ID_ATTR: write_id,
                    }
                ),
            }
            condition = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
            failure = self._dynamo.put_if(self._table, new_row, condition)
        else:
            failure = self._swap(tenant, name, row[_WRITE_ID_ATTR]["S"], {_WRITE_ID_ATTR: write_id})
        return None if failure is not None and not _has_written(failure, write_id) else write_id

    def _confirm(self, tenant: str, name: str, write_id: str, caller: str, now: datetime) -> bool:
        """Show the change in the list. Return False if another call changed the row meanwhile."""
        confirmed_id = self._new_id()
        changes = {
            _UPDATED_AT_ATTR: keys.time_key(now),
            _UPDATED_BY_ATTR: caller,
            _WRITE_ID_ATTR: confirmed_id,
        }
        failure = self._swap(tenant, name, write_id, changes)
        return failure is None or _has_written(failure, confirmed_id)

    def _swap(
        self, tenant: str, name: str, write_id: str, changes: dict[str, str]
    ) -> ConditionFailed | None:
        """Change attributes of the row if it has this write id."""
        names = {f"#{attribute}": attribute for attribute in changes}
        values = {f":{attribute}": to_attribute(text) for attribute, text in changes.items()}
        update = ", ".join(f"#{attribute} = :{attribute}" for attribute in changes)
        condition = Condition(
            f"#{_WRITE_ID_ATTR} = :expected",
            f"SET {update}",
            names,
            {**values, ":expected": to_attribute(write_id)},
        )
        outcome = self._dynamo.update_if(self._table, _row_key(tenant, name), condition)
        return outcome if isinstance(outcome, ConditionFailed) else None

    def _row(self, tenant: str, name: str) -> Item | None:
        row_key = _row_key(tenant, name)
        row = self._dynamo.read(self._table, [row_key]).get(row_key)
        return None if row is None else dict(check_layout(row))

    def _delete_row(self, row: Item) -> bool:
        condition = Condition(
            f"#{_WRITE_ID_ATTR} = :expected",
            names={f"#{_WRITE_ID_ATTR}": _WRITE_ID_ATTR},
            values={":expected": row[_WRITE_ID_ATTR]},
        )
        key = {name: row[name] for name in (keys.PK, keys.SK)}
        delete = {"TableName": self._table, "Key": key, **condition.arguments()}
        return self._dynamo.transact([{"Delete": delete}])

    def _put_parameter(self, tenant: str, name: str, value: str) -> None:
        def put() -> Any:
            return self._parameters().put_parameter(
                Name=parameter_name(self._stage, tenant, name),
                Value=value,
                Type="SecureString",
                Tier="Standard",
                Overwrite=True,
            )

        self._call("storing a secret", put)

    def _delete_parameter(self, tenant: str, name: str) -> None:
        parameter = parameter_name(self._stage, tenant, name)
        self._call("deleting a secret", lambda: self._parameters().delete_parameter(Name=parameter))

    def _call(self, activity: str, call: Callable[[], Any]) -> None:
        def call_ssm() -> None:
            try:
                call()
            except ClientError as error:
                _raise_known_error(error_code(error))
                if error_code(error) != "ParameterNotFound":
                    raise

        call_aws(activity, call_ssm)


def _raise_known_error(code: str) -> None:
    if code == "ParameterLimitExceeded":
        text = "The AWS account has no room for another parameter in SSM: delete unused ones."
        raise LimitExceeded(text, _FULL_ACCOUNT_RETRY_SECONDS)
    if code == "ValidationException":
        raise Invalid.of(FieldError("value", "is refused by SSM Parameter Store"))


def _conflict_error(name: str) -> Unavailable:
    return Unavailable(f"Other calls changed the secret {name!r} at the same time: try again.")


def _has_written(failure: ConditionFailed, write_id: str) -> bool:
    """Return whether an earlier try of the same write succeeded without an answer."""
    return bool(failure.item.get(_WRITE_ID_ATTR, {}).get("S") == write_id)


def _partition(tenant: str) -> str:
    return keys.join_parts(tenant, "secrets")


def _row_key(tenant: str, name: str) -> keys.RowKey:
    """Return the key of the row of a secret.

    >>> _row_key("acme", "bank")
    RowKey(pk='acme#secrets', sk='bank')
    """
    return keys.RowKey(_partition(tenant), keys.escape(name))


def _parse(row: Any) -> SecretInfo:
    return SecretInfo(
        row[_NAME_ATTR]["S"],
        keys.parse_time_key(row[_CREATED_AT_ATTR]["S"]),
        keys.parse_time_key(row[_UPDATED_AT_ATTR]["S"]),
        row[_UPDATED_BY_ATTR]["S"],
    )
