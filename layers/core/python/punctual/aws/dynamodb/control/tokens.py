"""Tokens in the control table: one row by hash, and one row by tenant that names the hash.

The row by tenant is put first and holds the hash and an expiry. A row by tenant without a row by
hash is not a token. So each step is one write, and each valid token appears in the list. The
module imports nothing heavy, because the authorizer runs it before calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute, to_item
from punctual.aws.dynamodb.client import (
    Condition,
    DynamoClient,
    KeyRange,
    check_layout,
    chunked,
    key_of,
)
from punctual.aws.dynamodb.keys import (
    LAST_CHAR,
    RowKey,
    escape,
    join_parts,
    parse_optional_time_key,
    parse_time_key,
    time_key,
)
from punctual.aws.retries import Client, ConditionFailed, RetryPolicy, call_aws, conditional_write
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import INVALID_TOKEN_RETENTION, LAST_USED_RESOLUTION, Token

TOKEN_KEY_PREFIX = "#token#"  # prefix of the partition keys of rows by hash, and of no others
HASH_ATTR = "hash"
TOKEN_LIST_KEY_PATTERN = "*#tokens"  # pattern of the partition keys of lists
TENANT_ATTR, TOKEN_ID_ATTR = "tenant", "id"
NAME_ATTR, ROLE_ATTR = "name", "role"
CREATED_AT_ATTR, CREATED_BY_ATTR = "made", "by"
USED_AT_ATTR, REVOKED_AT_ATTR = "used", "revoked"
REVOKE_REQUEST_ATTR = "wish"  # the audit note of the first revoke request


def token_key(token_hash: str) -> RowKey:
    """Return the key of a token by its hash. The authorizer knows only the hash.

    >>> token_key("ab")
    RowKey(pk='#token#ab', sk='-')
    """
    return RowKey(f"{TOKEN_KEY_PREFIX}{token_hash}", "-")


def list_row_key(tenant: str, token_id: str) -> RowKey:
    """Return the key of the row that maps a token id to its hash, for admins of the tenant.

    >>> list_row_key("acme", "01900000")
    RowKey(pk='acme#tokens', sk='01900000')
    """
    return RowKey(token_list_partition(tenant), escape(token_id))


def token_list_partition(tenant: str) -> str:
    return join_parts(tenant, "tokens")


def list_upper_bound(token_id: str | None) -> str:
    """Return the exclusive upper bound of the sort keys of a page.

    >>> list_row_key("acme", "01900000").sk < list_upper_bound(None)
    True
    """
    return LAST_CHAR if token_id is None else escape(token_id)


if TYPE_CHECKING:
    from punctual.engine.ports.tenants.token_rows import TokenCounts

_TOKEN_LIST_PAGE_SIZE = 50  # rows in a query page of a list
_TOKEN_COUNT_PAGE_SIZE = 1_000
_TOKEN_CHECK_INTERVAL = timedelta(minutes=1)
_TOKEN_CREATION_LIMIT = timedelta(hours=1)  # longer than any call that creates a token
_MAX_REPAIRED_ROWS = 25  # rows repaired in one call


class DynamoTokens:
    """The tokens of a tenant, for its admins."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table
        self._checked_at: dict[
            str, datetime
        ] = {}  # when the tokens of a full tenant were last checked

    def put(self, token: Token, token_hash: str) -> None:
        list_attrs = {HASH_ATTR: to_attribute(token_hash), **_ttl_attrs(token)}
        self._create_row(
            {
                **list_row_key(token.tenant, token.token_id).item(),
                **keys.ROW_LAYOUT_ATTRIBUTE,
                **list_attrs,
            }
        )
        self._create_row(
            {
                **token_key(token_hash).item(),
                **keys.ROW_LAYOUT_ATTRIBUTE,
                **_to_row(token),
            }
        )

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        token_hash = self._find_hash(tenant, token_id)
        return (
            None
            if token_hash is None
            else self._load_tokens(tenant, [token_hash], now).get(token_hash)
        )

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> Sequence[Token]:
        tokens: list[Token] = []
        for hashes in chunked(
            self._list_hashes(tenant, before, limit), min(limit, _TOKEN_LIST_PAGE_SIZE)
        ):
            tokens_by_hash = self._load_tokens(tenant, hashes, now)
            tokens += [
                tokens_by_hash[token_hash] for token_hash in hashes if token_hash in tokens_by_hash
            ]
            if len(tokens) >= limit:
                break
        return tokens[:limit]

    def store_revocation_request(
        self, tenant: str, token_id: str, request: str, expected: str = ""
    ) -> str | None:
        """Store a revoke request and return the request in force.

        The row keeps the first request, so concurrent calls continue with the same one.
        """
        token_hash = self._find_hash(tenant, token_id)
        if token_hash is None:
            return None
        condition = Condition(
            "#tenant = :tenant AND (attribute_not_exists(#wish) OR #wish = :old)",
            "SET #wish = :wish",
            {"#tenant": TENANT_ATTR, "#wish": REVOKE_REQUEST_ATTR},
            {
                ":tenant": to_attribute(tenant),
                ":wish": to_attribute(request),
                ":old": to_attribute(expected),
            },
        )
        outcome = self._dynamo.update_if(self._table, token_key(token_hash), condition)
        if not isinstance(outcome, ConditionFailed):
            return request
        first_request = outcome.item.get(REVOKE_REQUEST_ATTR)
        return None if first_request is None else str(first_request["S"])

    def count(self, tenant: str, now: datetime) -> "TokenCounts":
        """Return the number of valid tokens and of listed tokens.

        The rows of the list suffice if the tenant has room. Their TTL is a month after the end of
        the token. If the tenant has no room, the rows by hash are read too.
        """
        from punctual.engine.commands.tokens import is_below_token_limit
        from punctual.engine.ports.tenants.token_rows import TokenCounts

        key_range = KeyRange(token_list_partition(tenant))
        rows = list(self._dynamo.query(self._table, key_range, _TOKEN_COUNT_PAGE_SIZE))
        valid_rows = [row for row in rows if not _expires_by(row, now + INVALID_TOKEN_RETENTION)]
        listed_count = sum(not _expires_by(row, now) for row in rows)
        checked_at = self._checked_at.get(tenant)
        if is_below_token_limit(TokenCounts(len(valid_rows), listed_count)) or (
            checked_at and now - checked_at < _TOKEN_CHECK_INTERVAL
        ):
            return TokenCounts(len(valid_rows), listed_count)
        orphaned, revoked = self._check_list(tenant, valid_rows, now)
        if not orphaned and not revoked:
            self._checked_at[tenant] = now  # the next calls are answered from the list alone
        return TokenCounts(len(valid_rows) - orphaned - revoked, listed_count - orphaned)

    def _check_list(self, tenant: str, rows: Sequence[Item], now: datetime) -> tuple[int, int]:
        """Return how many rows lead to no token, and how many to a revoked token.

        A crash between two writes leaves both kinds. Up to `_MAX_REPAIRED_ROWS` get a TTL here.
        """
        from punctual.domain.identifiers import sortable_id

        list_rows_by_key = {token_key(_hash_of(row)): row for row in rows}
        token_rows = self._dynamo.read(self._table, list(list_rows_by_key))
        orphaned, revoked, repaired = 0, 0, 0
        settled_before = sortable_id(now - _TOKEN_CREATION_LIMIT, bytes(10))
        for row_key, row in list_rows_by_key.items():
            list_key = key_of(row)
            token = (
                _parse_token(check_layout(token_rows[row_key])) if row_key in token_rows else None
            )
            if token is not None and token.tenant == tenant and token.revoked_at is None:
                continue
            if token is not None and token.tenant == tenant:
                revoked += 1
                ttl_attrs = _ttl_attrs(token)
            else:
                orphaned += 1
                # The put of the row by hash may follow soon, so young rows stay in the list.
                ttl_attrs = (
                    {keys.TTL: to_attribute(keys.to_ttl(now))}
                    if list_key.sk < settled_before
                    else {}
                )
            if ttl_attrs and repaired < _MAX_REPAIRED_ROWS:
                repaired += 1
                self._expire(list_key, ttl_attrs)
        return orphaned, revoked

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        token_hash = self._find_hash(tenant, token_id)
        token = (
            None
            if token_hash is None
            else self._load_tokens(tenant, [token_hash], now).get(token_hash)
        )
        if token_hash is None or token is None:
            return None
        if token.revoked_at is None:
            token = self._revoke(token_hash, token._replace(revoked_at=now))
        self._expire_list_row(token)
        return token

    def _revoke(self, token_hash: str, token: Token) -> Token:
        names = {"#revoked": REVOKED_AT_ATTR, "#ttl": keys.TTL, "#pk": keys.PK}
        assert token.revoked_at is not None
        values = {
            ":now": to_attribute(time_key(token.revoked_at)),
            ":ttl": _ttl_attrs(token)[keys.TTL],
        }
        condition = Condition(
            "attribute_exists(#pk) AND attribute_not_exists(#revoked)",
            "SET #revoked = :now, #ttl = :ttl",
            names,
            values,
        )
        outcome = self._dynamo.update_if(self._table, token_key(token_hash), condition)
        if isinstance(outcome, ConditionFailed) and outcome.item:
            # Another call or an earlier try revoked it first.
            return _parse_token(check_layout(outcome.item))
        return token

    def _expire_list_row(self, token: Token) -> None:
        """Set the TTL of the list row. After a failure the row leads to no token in the end."""
        self._expire(list_row_key(token.tenant, token.token_id), _ttl_attrs(token))

    def _expire(self, row_key: keys.RowKey, ttl_attrs: Item) -> None:
        names = {"#ttl": keys.TTL, "#pk": keys.PK}
        values = {":ttl": ttl_attrs[keys.TTL]}
        condition = Condition("attribute_exists(#pk)", "SET #ttl = :ttl", names, values)
        self._dynamo.update_if(self._table, row_key, condition)

    def _create_row(self, item: Item) -> None:
        condition = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
        failure = self._dynamo.put_if(self._table, item, condition)
        if failure is not None and not failure.ambiguous:
            raise Unavailable("This token exists already: create another one.")

    def _find_hash(self, tenant: str, token_id: str) -> str | None:
        row_key = list_row_key(tenant, token_id)
        row = self._dynamo.read(self._table, [row_key]).get(row_key)
        return None if row is None else _hash_of(row)

    def _list_hashes(self, tenant: str, before: str | None, limit: int) -> Iterator[str]:
        key_range = KeyRange(
            token_list_partition(tenant),
            high=list_upper_bound(before),
            excludes_high=True,
            newest_first=True,
        )
        for row in self._dynamo.query(self._table, key_range, min(limit, _TOKEN_LIST_PAGE_SIZE)):
            yield _hash_of(row)

    def _load_tokens(self, tenant: str, hashes: Sequence[str], now: datetime) -> dict[str, Token]:
        """Return the tokens of this tenant by hash, without those to delete."""
        hashes_by_key = {token_key(token_hash): token_hash for token_hash in hashes}
        rows = self._dynamo.read(self._table, list(hashes_by_key))
        tokens = {
            hashes_by_key[row_key]: _parse_token(check_layout(row)) for row_key, row in rows.items()
        }
        return {
            token_hash: token
            for token_hash, token in tokens.items()
            if token.tenant == tenant and not _is_deleted(token, now)
        }


class AuthorizerTokens:
    """Tokens by hash, for the authorizer. Each token is read and updated by a call of its own."""

    def __init__(self, client: Client, table: str, retry_policy: RetryPolicy) -> None:
        self._client = client
        self._table = table
        self._retry_policy = retry_policy

    def find(self, token_hash: str) -> Token | None:
        response = call_aws(
            "reading a token",
            lambda: self._client().get_item(
                TableName=self._table,
                Key=token_key(token_hash).item(),
                ConsistentRead=True,
            ),
        )
        return _parse_token(check_layout(response["Item"])) if "Item" in response else None

    def record_use(self, token_hash: str, now: datetime) -> None:
        """Set the time of last use. Of several concurrent environments only one writes."""
        condition = Condition(
            "attribute_exists(#pk) AND (attribute_not_exists(#used) OR #used <= :before)",
            "SET #used = :now",
            {"#pk": keys.PK, "#used": USED_AT_ATTR},
            {
                ":now": to_attribute(time_key(now)),
                ":before": to_attribute(time_key(now - LAST_USED_RESOLUTION)),
            },
        )
        conditional_write(
            "recording the use of a token",
            lambda: self._client().update_item(
                TableName=self._table,
                Key=token_key(token_hash).item(),
                **condition.arguments(),
            ),
            self._retry_policy,
        )


def _expires_by(row: Mapping[str, Any], at: datetime) -> bool:
    ttl = row.get(keys.TTL)
    return ttl is not None and int(ttl["N"]) <= keys.to_ttl(at)


def _hash_of(row: Mapping[str, Any]) -> str:
    return str(check_layout(row)[HASH_ATTR]["S"])


def _to_row(token: Token) -> Item:
    times = {
        CREATED_AT_ATTR: token.created_at,
        keys.UNTIL_ATTR: token.expires_at,
        USED_AT_ATTR: token.last_used_at,
        REVOKED_AT_ATTR: token.revoked_at,
    }
    return to_item(
        {
            TENANT_ATTR: token.tenant,
            TOKEN_ID_ATTR: token.token_id,
            NAME_ATTR: token.name,
            ROLE_ATTR: token.role.label,
            CREATED_BY_ATTR: token.created_by,
            **{name: time_key(time) for name, time in times.items() if time is not None},
        }
    ) | _ttl_attrs(token)


def _ttl_attrs(token: Token) -> Item:
    delete_at = token.delete_at()
    return {} if delete_at is None else {keys.TTL: to_attribute(keys.to_ttl(delete_at))}


def _parse_token(row: Mapping[str, Any]) -> Token:
    role = Role.from_label(row[ROLE_ATTR]["S"])
    if role is None:
        raise Unavailable("A token has a role that this version does not know.")
    return Token(
        token_id=row[TOKEN_ID_ATTR]["S"],
        tenant=row[TENANT_ATTR]["S"],
        name=row[NAME_ATTR]["S"],
        role=role,
        created_at=parse_time_key(row[CREATED_AT_ATTR]["S"]),
        created_by=row[CREATED_BY_ATTR]["S"],
        expires_at=parse_optional_time_key(row.get(keys.UNTIL_ATTR, {}).get("S")),
        last_used_at=parse_optional_time_key(row.get(USED_AT_ATTR, {}).get("S")),
        revoked_at=parse_optional_time_key(row.get(REVOKED_AT_ATTR, {}).get("S")),
    )


def _is_deleted(token: Token, now: datetime) -> bool:
    delete_at = token.delete_at()
    return delete_at is not None and delete_at <= now
