"""Tokens in the control table: a row found by the hash, and one by tenant that says which hash.

The row by tenant is put first and holds nothing but the hash: one that leads nowhere is no token.
So each step is one write, and what lets a call in is what a list shows. Nothing heavy is imported
here, for it runs before every call.
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
    from punctual.engine.commands.tokens import Counted

_READ = 50  # rows of a list at a time
_COUNTED = 1_000
_LOOKED = timedelta(minutes=1)
_SETTLED = timedelta(hours=1)  # no call that makes a token lasts so long
_MENDED = 25  # rows in one call


class DynamoTokens:
    """For admins, by tenant."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table
        self._looked: dict[str, datetime] = {}  # tenants that have as many as they may

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
        """The row keeps it, so that all who ask at the same time go on with one of them."""
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
        """By the rows of the list alone, which know when a token is forgotten: for it has ended a
        month before. Where that leaves no room, the tokens themselves are looked at."""
        from punctual.engine.commands.tokens import Counted, has_room

        where = Range(token_keys.tokens_of(tenant))
        rows = list(self._dynamo.query(self._table, where, _COUNTED))
        good = [row for row in rows if not _ends_by(row, now + KEPT)]
        kept = sum(not _ends_by(row, now) for row in rows)
        looked = self._looked.get(tenant)
        if has_room(Counted(len(good), kept)) or (looked and now - looked < _LOOKED):
            return Counted(len(good), kept)
        nowhere, ended = self._check(tenant, good, now)
        if not nowhere and not ended:
            self._looked[tenant] = now  # who asks all the time is answered from the list
        return Counted(len(good) - nowhere - ended, kept - nowhere)

    def _check(self, tenant: str, rows: Sequence[Item], now: datetime) -> tuple[int, int]:
        """How many of these rows lead nowhere, and how many to a token that was taken back, after
        a crash between two writes. Some are seen to: they go by themselves from now on."""
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
                # Its other row may be about to be put: no list may lose a token that is good.
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
            return _token(known(refused.item))  # somebody was first, or an earlier try of ours
        return token

    def _end_list_row(self, token: Token) -> None:
        """It may go with the other one; if this fails, it leads nowhere."""
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
        """By hash, those that are this tenant's and not forgotten yet."""
        places = {token_keys.door(hashed): hashed for hashed in hashes}
        rows = self._dynamo.read(self._table, list(places))
        tokens = {places[at]: _token(known(row)) for at, row in rows.items()}
        return {
            hashed: token
            for hashed, token in tokens.items()
            if token.tenant == tenant and not _forgotten(token, now)
        }


class DoorTokens:
    """For who lets calls in, by hash: a row each, read and noted with calls of its own."""

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
        """Several environments may have the same thought: one of them writes."""
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
