"""The keys and attribute names of tokens in the control table."""

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, joined

DOORS = "#token#"  # prefix of the partition keys of rows by hash, and of no others
HASH = "hash"
LISTS = "*#tokens"  # pattern of the partition keys of lists
TENANT, TOKEN_ID = "tenant", "id"
NAME, ROLE = "name", "role"
CREATED, BY = "made", "by"
USED, REVOKED = "used", "revoked"
WISH = "wish"  # the audit note of the first revoke request


def door(hashed: str) -> RowKey:
    """Return the key of a token by its hash. The authorizer knows only the hash.

    >>> door("ab")
    RowKey(pk='#token#ab', sk='-')
    """
    return RowKey(f"{DOORS}{hashed}", "-")


def listed(tenant: str, token_id: str) -> RowKey:
    """Return the key of the row that maps a token id to its hash, for admins of the tenant.

    >>> listed("acme", "01900000")
    RowKey(pk='acme#tokens', sk='01900000')
    """
    return RowKey(tokens_of(tenant), escape(token_id))


def tokens_of(tenant: str) -> str:
    return joined(tenant, "tokens")


def before(token_id: str | None) -> str:
    """Return the exclusive upper bound of the sort keys of a page.

    >>> listed("acme", "01900000").sk < before(None)
    True
    """
    return LAST_CHAR if token_id is None else escape(token_id)
