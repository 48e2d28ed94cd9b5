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
from punctual.aws.dynamodb.client import Condition, DynamoClient, Range, chunked, key_of, known
from punctual.aws.dynamodb.control import token_keys
from punctual.aws.dynamodb.sort_keys import moment, parse_moment
from punctual.aws.retries import Client, ConditionFailed, RetryPolicy, answer, conditional
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import KEPT, USED, Token

if TYPE_CHECKING:
    from punctual.engine.ports.token_rows import Counted

_READ = 50  # rows in a query page of a list
_COUNTED = 1_000
_LOOKED = timedelta(minutes=1)
_SETTLED = timedelta(hours=1)  # longer than any call that creates a token
_MENDED = 25  # rows repaired in one call


class DynamoTokens:
    """The tokens of a tenant, for its admins."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table
        self._looked: dict[str, datetime] = {}  # when the tokens of a full tenant were last checked

    def put(self, token: Token, hashed: str) -> None:
        about = {token_keys.HASH: to_attribute(hashed), **_ends(token)}
        self._put({**token_keys.listed(token.tenant, token.token_id).item(), **_layout(), **about})
        self._put({**token_keys.door(hashed).item(), **_layout(), **_row(token)})

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        hashed = self._hash(tenant, token_id)
        return None if hashed is None else self._kept(tenant, [hashed], now).get(hashed)

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> Sequence[Token]:
        found: list[Token] = []
        for some in chunked(self._hashes(tenant, before, limit), min(limit, _READ)):
            kept = self._kept(tenant, some, now)
            found += [kept[hashed] for hashed in some if hashed in kept]
            if len(found) >= limit:
                break
        return found[:limit]

    def wished(self, tenant: str, token_id: str, wish: str, old: str = "") -> str | None:
        """Store a revoke request and return the request in force.

        The row keeps the first request, so concurrent calls continue with the same one.
        """
        hashed = self._hash(tenant, token_id)
        if hashed is None:
            return None
        condition = Condition(
            "#tenant = :tenant AND (attribute_not_exists(#wish) OR #wish = :old)",
            "SET #wish = :wish",
            {"#tenant": token_keys.TENANT, "#wish": token_keys.WISH},
            {
                ":tenant": to_attribute(tenant),
                ":wish": to_attribute(wish),
                ":old": to_attribute(old),
            },
        )
        refused = self._dynamo.update_if(self._table, token_keys.door(hashed), condition)
        if not isinstance(refused, ConditionFailed):
            return wish
        first = refused.item.get(token_keys.WISH)
        return None if first is None else str(first["S"])

    def count(self, tenant: str, now: datetime) -> "Counted":
        """Return how many tokens are good, and how many are kept.

        The rows of the list suffice if the tenant has room. Their TTL is a month after the end of
        the token. If the tenant has no room, the rows by hash are read too.
        """
        from punctual.engine.commands.tokens import has_room
        from punctual.engine.ports.token_rows import Counted

        where = Range(token_keys.tokens_of(tenant))
        rows = list(self._dynamo.query(self._table, where, _COUNTED))
        good = [row for row in rows if not _ends_by(row, now + KEPT)]
        kept = sum(not _ends_by(row, now) for row in rows)
        looked = self._looked.get(tenant)
        if has_room(Counted(len(good), kept)) or (looked and now - looked < _LOOKED):
            return Counted(len(good), kept)
        nowhere, ended = self._check(tenant, good, now)
        if not nowhere and not ended:
            self._looked[tenant] = now  # the next calls are answered from the list alone
        return Counted(len(good) - nowhere - ended, kept - nowhere)

    def _check(self, tenant: str, rows: Sequence[Item], now: datetime) -> tuple[int, int]:
        """Return how many rows lead to no token, and how many to a revoked token.

        A crash between two writes leaves both kinds. Up to `_MENDED` of them get a TTL here.
        """
        from punctual.domain.identifiers import sortable_id

        doors = {token_keys.door(_hash_of(row)): row for row in rows}
        found = self._dynamo.read(self._table, list(doors))
        nowhere, ended, mended = 0, 0, 0
        settled = sortable_id(now - _SETTLED, bytes(10))
        for door, row in doors.items():
            at = key_of(row)
            token = _token(known(found[door])) if door in found else None
            if token is not None and token.tenant == tenant and token.revoked_at is None:
                continue
            if token is not None and token.tenant == tenant:
                ended += 1
                ends = _ends(token)
            else:
                nowhere += 1
                # The put of the row by hash may follow soon, so young rows stay in the list.
                ends = {keys.TTL: to_attribute(keys.expiry(now))} if at.sk < settled else {}
            if ends and mended < _MENDED:
                mended += 1
                self._end(at, ends)
        return nowhere, ended

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        hashed = self._hash(tenant, token_id)
        token = None if hashed is None else self._kept(tenant, [hashed], now).get(hashed)
        if hashed is None or token is None:
            return None
        if token.revoked_at is None:
            token = self._revoke(hashed, token._replace(revoked_at=now))
        self._end_list_row(token)
        return token

    def _revoke(self, hashed: str, token: Token) -> Token:
        names = {"#revoked": token_keys.REVOKED, "#ttl": keys.TTL, "#pk": keys.PK}
        assert token.revoked_at is not None
        values = {":now": to_attribute(moment(token.revoked_at)), ":ttl": _ends(token)[keys.TTL]}
        condition = Condition(
            "attribute_exists(#pk) AND attribute_not_exists(#revoked)",
            "SET #revoked = :now, #ttl = :ttl",
            names,
            values,
        )
        refused = self._dynamo.update_if(self._table, token_keys.door(hashed), condition)
        if isinstance(refused, ConditionFailed) and refused.item:
            return _token(known(refused.item))  # another call or an earlier try revoked it first
        return token

    def _end_list_row(self, token: Token) -> None:
        """Set the TTL of the list row. After a failure the row leads to no token in the end."""
        self._end(token_keys.listed(token.tenant, token.token_id), _ends(token))

    def _end(self, at: keys.RowKey, ends: Item) -> None:
        names = {"#ttl": keys.TTL, "#pk": keys.PK}
        values = {":ttl": ends[keys.TTL]}
        condition = Condition("attribute_exists(#pk)", "SET #ttl = :ttl", names, values)
        self._dynamo.update_if(self._table, at, condition)

    def _put(self, item: Item) -> None:
        condition = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
        refused = self._dynamo.put_if(self._table, item, condition)
        if refused is not None and not refused.ambiguous:
            raise Unavailable("This token stands already: make another.")

    def _hash(self, tenant: str, token_id: str) -> str | None:
        at = token_keys.listed(tenant, token_id)
        row = self._dynamo.read(self._table, [at]).get(at)
        return None if row is None else _hash_of(row)

    def _hashes(self, tenant: str, before: str | None, limit: int) -> Iterator[str]:
        where = Range(
            token_keys.tokens_of(tenant),
            high=token_keys.before(before),
            below=True,
            newest_first=True,
        )
        for row in self._dynamo.query(self._table, where, min(limit, _READ)):
            yield _hash_of(row)

    def _kept(self, tenant: str, hashes: Sequence[str], now: datetime) -> dict[str, Token]:
        """Return the tokens of this tenant by hash, without forgotten ones."""
        places = {token_keys.door(hashed): hashed for hashed in hashes}
        rows = self._dynamo.read(self._table, list(places))
        tokens = {places[at]: _token(known(row)) for at, row in rows.items()}
        return {
            hashed: token
            for hashed, token in tokens.items()
            if token.tenant == tenant and not _forgotten(token, now)
        }


class DoorTokens:
    """Tokens by hash, for the authorizer. Each token is read and updated by a call of its own."""

    def __init__(self, client: Client, table: str, patience: RetryPolicy) -> None:
        self._client = client
        self._table = table
        self._patience = patience

    def find(self, hashed: str) -> Token | None:
        found = answer(
            "reading a token",
            lambda: self._client().get_item(
                TableName=self._table, Key=token_keys.door(hashed).item(), ConsistentRead=True
            ),
        )
        return _token(known(found["Item"])) if "Item" in found else None

    def used(self, hashed: str, now: datetime) -> None:
        """Set the time of last use. Of several concurrent environments only one writes."""
        condition = Condition(
            "attribute_exists(#pk) AND (attribute_not_exists(#used) OR #used <= :before)",
            "SET #used = :now",
            {"#pk": keys.PK, "#used": token_keys.USED},
            {":now": to_attribute(moment(now)), ":before": to_attribute(moment(now - USED))},
        )
        conditional(
            "noting that a token was used",
            lambda: self._client().update_item(
                TableName=self._table, Key=token_keys.door(hashed).item(), **condition.arguments()
            ),
            self._patience,
        )


def _ends_by(row: Mapping[str, Any], at: datetime) -> bool:
    end = row.get(keys.TTL)
    return end is not None and int(end["N"]) <= keys.expiry(at)


def _hash_of(row: Mapping[str, Any]) -> str:
    return str(known(row)[token_keys.HASH]["S"])


def _layout() -> Item:
    return {keys.FORMAT: to_attribute(keys.LAYOUT)}


def _row(token: Token) -> Item:
    moments = {
        token_keys.CREATED: token.created_at,
        keys.UNTIL: token.expires_at,
        token_keys.USED: token.last_used_at,
        token_keys.REVOKED: token.revoked_at,
    }
    return to_item(
        {
            token_keys.TENANT: token.tenant,
            token_keys.TOKEN_ID: token.token_id,
            token_keys.NAME: token.name,
            token_keys.ROLE: token.role.word,
            token_keys.BY: token.created_by,
            **{name: moment(at) for name, at in moments.items() if at is not None},
        }
    ) | _ends(token)


def _ends(token: Token) -> Item:
    at = token.forgotten_at()
    return {} if at is None else {keys.TTL: to_attribute(keys.expiry(at))}


def _token(row: Mapping[str, Any]) -> Token:
    role = Role.of(row[token_keys.ROLE]["S"])
    if role is None:
        raise Unavailable("A token has a role that this version does not know.")
    return Token(
        token_id=row[token_keys.TOKEN_ID]["S"],
        tenant=row[token_keys.TENANT]["S"],
        name=row[token_keys.NAME]["S"],
        role=role,
        created_at=parse_moment(row[token_keys.CREATED]["S"]),
        created_by=row[token_keys.BY]["S"],
        expires_at=_moment(row, keys.UNTIL),
        last_used_at=_moment(row, token_keys.USED),
        revoked_at=_moment(row, token_keys.REVOKED),
    )


def _moment(row: Mapping[str, Any], name: str) -> datetime | None:
    return parse_moment(row[name]["S"]) if name in row else None


def _forgotten(token: Token, now: datetime) -> bool:
    at = token.forgotten_at()
    return at is not None and at <= now
