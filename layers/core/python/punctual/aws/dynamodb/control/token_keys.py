"""The keys of tokens in the control table, and the names of what their rows hold."""

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, joined

DOORS = "#token#"  # what the partitions of rows found by a hash begin with, and no others
HASH = "hash"
LISTS = "*#tokens"  # what the partitions of lists are like
TENANT, TOKEN_ID = "tenant", "id"
NAME, ROLE = "name", "role"
CREATED, BY = "made", "by"
USED, REVOKED = "used", "revoked"
WISH = "wish"  # who first asked to take it back


def door(hashed: str) -> RowKey:
    """The token itself: whoever checks a call knows nothing of it but its hash.

    >>> door("ab")
    RowKey(pk='#token#ab', sk='-')
    """
    return RowKey(f"{DOORS}{hashed}", "-")


def listed(tenant: str, token_id: str) -> RowKey:
    """Which hash it is, for the admins of its tenant, who know its id alone.

    >>> listed("acme", "01900000")
    RowKey(pk='acme#tokens', sk='01900000')
    """
    return RowKey(tokens_of(tenant), escape(token_id))


def tokens_of(tenant: str) -> str:
    return joined(tenant, "tokens")


def before(token_id: str | None) -> str:
    """What the sort keys of a page lie below.

    >>> listed("acme", "01900000").sk < before(None)
    True
    """
    return LAST_CHAR if token_id is None else escape(token_id)
