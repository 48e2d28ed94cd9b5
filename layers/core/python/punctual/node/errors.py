"""Errors that stop a node: the message is one line for the operator."""

from punctual.domain.errors import Unavailable


class StoreError(Unavailable):
    """The data folder cannot be used in its present state. The message says what to do."""


class StoreLost(StoreError):
    """The database was deleted, replaced or damaged while the node runs. The node has to end."""
