"""The keys and attribute names of tokens in the control table."""

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, join_parts

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
