"""Why the embedded store cannot be opened: one line for whoever starts the node."""

from punctual.domain.errors import Unavailable


class StoreError(Unavailable):
    """The data folder cannot be used as it is; the message says what to do."""


class StoreLost(StoreError):
    """The database was deleted, replaced or damaged while the node runs: it has to end."""
