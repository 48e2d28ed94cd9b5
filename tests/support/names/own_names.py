"""Names for jobs that a test does not name: recurring jobs of a tenant have different names."""

from itertools import count

_NUMBERS = count(1)


def own_name(text: str) -> str:
    """Return a name that no other job of this process has."""
    return f"{text} {next(_NUMBERS)}"
