"""Numbers of examples by hypothesis profile: `full` runs all of them, `fast` runs a quarter."""

from hypothesis import settings

DEFAULT = 100  # of hypothesis, and so of the profile `full`
FAST = 25
MIN_EXAMPLES = 20


def load_profile(name: str) -> None:
    settings.register_profile("full", derandomize=True, deadline=None, database=None)
    settings.register_profile("fast", settings.get_profile("full"), max_examples=FAST)
    settings.register_profile("search", deadline=None)
    settings.load_profile(name)


def examples(count: int) -> int:
    """Return `count`, or the share of it that the profile in use runs."""
    share = settings().max_examples / DEFAULT
    return max(min(count, MIN_EXAMPLES), int(count * share))
