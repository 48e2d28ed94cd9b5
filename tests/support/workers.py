"""How tests are shared out among the workers of `make test`."""

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

ALONE = "tests/e2e/"
"""They wait for nodes of their own more than they work: one worker does so beside the others."""


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """A file stays with one worker, as what it makes once does; all of `ALONE` is one file.

    Files are begun in the order in which they are found, so it is begun first.
    """

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if nodeid.startswith(ALONE) else nodeid.partition("::")[0]
