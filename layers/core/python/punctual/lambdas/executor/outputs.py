"""Stores the outputs and logs of attempts, one object for each output or log.

A runner outside may have stored parts of the log and a large output itself.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.claims import ClaimIdentity, OutputUpload
from punctual.domain.errors import Unavailable
from punctual.engine.changes.run_results import output_key
from punctual.engine.execution.executor import Assignment
from punctual.engine.execution.log_parts import merge_log
from punctual.engine.ports.blobs import Blob, Blobs
from punctual.engine.ports.rows import Detail
from punctual.tasks.assignment import detail_of
from punctual.tasks.contract import Outcome

ReadUpload = Callable[[ClaimIdentity, str], OutputUpload | None]


class AttemptResult(NamedTuple):
    """The outcome and log of one attempt."""

    assignment: Assignment
    outcome: Outcome
    log: bytes


def store_results(
    blobs: Blobs, results: Sequence[AttemptResult], read_upload: ReadUpload
) -> list[Detail | Unavailable]:
    """Store outputs and logs. Return for each attempt its detail, or the error of the store.

    A second store of an attempt replaces its own objects. `read_upload` reads what a runner says
    about the output that it stored.
    """
    prepared = [_prepare(blobs, result, read_upload) for result in results]
    objects = [blob for _, own_blobs in prepared for blob in own_blobs]
    failures = iter(blobs.put_many(objects) if objects else ())
    stored: list[Detail | Unavailable] = []
    for detail, own_blobs in prepared:
        failed = [failure for failure in islice(failures, len(own_blobs)) if failure is not None]
        stored.append(failed[0] if failed else detail)
    return stored


def _prepare(
    blobs: Blobs, result: AttemptResult, read_upload: ReadUpload
) -> tuple[Detail, list[Blob]]:
    """Return the detail of the attempt and the objects that it names."""
    outcome, log = result.outcome, result.log
    key, run = result.assignment.key, result.assignment.run
    detail = detail_of(result.assignment, outcome)
    if detail.discarded:
        return detail, []
    objects = []
    merged = merge_log(blobs, key, run.run_id, run.attempt, outcome.log_offset, log)
    if merged is not None:
        objects.append(merged.blob)
        detail = replace(detail, log_blob=merged.blob.name, log_size=len(merged.blob.data))
    if outcome.output_upload:
        claim = ClaimIdentity(*key, run.run_id, run.attempt, run.token)
        upload = read_upload(claim, outcome.output_upload)
        if upload is not None and upload.size:
            name = output_key(key, run.run_id, run.attempt)
            detail = replace(
                detail, output_blob=name, output_size=upload.size, output_type=upload.content_type
            )
    elif outcome.output:
        with_id = replace(detail, output=outcome.output)
        if with_id.short_output:  # the id of an event or a message stands in the run itself
            return with_id, objects
        name = output_key(key, run.run_id, run.attempt)
        objects.append(Blob(name, outcome.output, outcome.output_type))
        detail = replace(detail, output_blob=name, output_size=len(outcome.output))
    return detail, objects
