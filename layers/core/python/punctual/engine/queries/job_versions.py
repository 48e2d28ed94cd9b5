"""The definitions that a job has had, newest first."""

import re
from itertools import islice
from typing import NamedTuple

from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.rows import DefinitionRow, JobKey, Page
from punctual.engine.queries.cursor import invalid_cursor
from punctual.engine.queries.slices import Sliced

MAX_VERSIONS_READ = 50  # definitions read for one answer, each by the one after it
_REF = re.compile(r"[0-9]{1,9}-[A-Za-z0-9_-]{1,64}")


class VersionView(NamedTuple):
    """A version of a job, with its payload, and the version before it."""

    definition: DefinitionRow
    previous: DefinitionRow | None


class JobVersions:
    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def page(
        self, key: JobKey, current: DefinitionRow, limit: int, after: tuple[str, ...] | None
    ) -> Sliced[Page]:
        """Return a page of versions. The cursor is the ref of the last one. A page may be short."""
        start = current if after is None else self._version_before(key, after[0])
        if start is None:
            return Page([], None)
        size = min(limit, MAX_VERSIONS_READ)
        versions: list[VersionView] = []
        newer: DefinitionRow | None = None
        for definition in islice(self._definitions.history(key, start), size + 1):
            if newer is not None:
                versions.append(VersionView(self._definitions.with_payload(newer), definition))
            newer = definition
            yield
        if newer is not None and len(versions) < size:
            # It is the first version, or the row before it is lost.
            versions.append(VersionView(self._definitions.with_payload(newer), None))
            newer = None
        return Page(versions, None if newer is None else (versions[-1].definition.ref,))

    def _version_before(self, key: JobKey, ref: str) -> DefinitionRow | None:
        if not _REF.fullmatch(ref):
            raise invalid_cursor()
        shown = self._definitions.find(key, ref)
        if shown is None:
            raise invalid_cursor()
        return self._definitions.find(key, shown.previous_ref) if shown.previous_ref else None
