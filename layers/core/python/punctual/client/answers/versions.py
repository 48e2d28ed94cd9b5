"""Answers about the versions of a job."""

from typing import Any

import msgspec

from punctual.client.model import AwareDatetime, Model


class JobVersion(Model, frozen=True, kw_only=True):
    """A version of a job: the caller that made it, what it changed, and all fields."""

    version: int
    at: AwareDatetime
    by: str = ""
    changed: tuple[str, ...] = ()
    job: dict[str, Any] = msgspec.field(default_factory=dict)
