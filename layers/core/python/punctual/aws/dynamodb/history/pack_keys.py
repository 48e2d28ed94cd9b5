"""The key of what the ends of runs leave that were claimed together, among the runs."""

from punctual.aws.dynamodb.sort_keys import joined


def pack(tenant: str, claim: str) -> str:
    """No run's own partition key has three parts.

    >>> pack("acme", "0123456789ab")
    'acme#pack#0123456789ab'
    """
    return joined(tenant, "pack", claim)
