"""Stores the outputs and logs of attempts, one object for each output or log.

A detached runner may have stored parts of the log and a large output itself.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.claims import ClaimIdentity, OutputUpload
from punctual.domain.errors import Unavailable
from punctual.engine.changes.run_results import MISSING_UPLOAD_ERROR, output_key
from punctual.engine.execution.executor import Assignment
from punctual.engine.execution.log_parts import LogOfClaim, LogText, leftover_parts, merge_log
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


class StoredResult(NamedTuple):
    """The detail of an attempt, and the parts of logs that its end makes obsolete.

    `problem` says why an attempt without an error has failed.
    """

    detail: Detail
    obsolete_names: Sequence[str] = ()
    problem: str = ""


def store_results(
    blobs: Blobs, results: Sequence[AttemptResult], read_upload: ReadUpload
) -> list[StoredResult | Unavailable]:
    """Store outputs and logs. Return the result of each attempt, or the error of the store.

    A second store of an attempt replaces its own objects. `read_upload` reads what a runner says
    about the output that it stored.
    """
    prepared = [_prepare(blobs, result, read_upload) for result in results]
    objects = [blob for _, own_blobs in prepared for blob in own_blobs]
    failures = iter(blobs.put_many(objects) if objects else ())
    stored: list[StoredResult | Unavailable] = []
    for stored_result, own_blobs in prepared:
        failed = [failure for failure in islice(failures, len(own_blobs)) if failure is not None]
        stored.append(failed[0] if failed else stored_result)
    return stored


def _prepare(
    blobs: Blobs, result: AttemptResult, read_upload: ReadUpload
) -> tuple[StoredResult, list[Blob]]:
    """Return the result of the attempt and the objects that it names."""
    outcome = result.outcome
    key, run = result.assignment.key, result.assignment.run
    detail = detail_of(result.assignment, outcome)
    if detail.discarded:
        return StoredResult(detail), []
    objects: list[Blob] = []
    detail, names = _with_log(blobs, detail, result, objects)
    problem = ""
    if outcome.output_upload:
        name = output_key(key, run.run_id, run.attempt)
        claim = ClaimIdentity(*key, run.run_id, run.attempt, run.token)
        upload = read_upload(claim, outcome.output_upload)
        if upload is None or not blobs.accept_upload(name, run.token):
            problem = MISSING_UPLOAD_ERROR
        else:
            detail = replace(
                detail, output_blob=name, output_size=upload.size, output_type=upload.content_type
            )
    elif outcome.output:
        detail = replace(detail, output=outcome.output)
        if not detail.short_output:  # the id of an event or a message stands in the run itself
            name = output_key(key, run.run_id, run.attempt)
            # Only the claim of a script is handed out, so only its objects need a token.
            token = run.token if _is_script(result.assignment) else 0
            objects.append(Blob(name, outcome.output, outcome.output_type, token))
            size = len(outcome.output)
            detail = replace(detail, output=None, output_blob=name, output_size=size)
    return StoredResult(detail, names, problem), objects


def _with_log(
    blobs: Blobs, detail: Detail, result: AttemptResult, objects: list[Blob]
) -> tuple[Detail, Sequence[str]]:
    """Return the detail with the log, and the parts that its object in `objects` replaces.

    The runner of an attempt that was abandoned may have stored parts of its log.
    """
    (key, run, *_), outcome = result.assignment, result.outcome
    log = LogOfClaim(key, run.run_id, run.attempt, run.token)
    is_script = _is_script(result.assignment)
    probes = is_script and not result.log and outcome.status != "SUCCESS"
    merged = merge_log(blobs, LogText(log, outcome.log_offset, result.log), probes)
    names = leftover_parts(blobs, key, run) if is_script else []
    if merged is None:
        return detail, names
    objects.append(merged.blob)
    detail = replace(
        detail,
        log_blob=merged.blob.name,
        log_size=len(merged.blob.data),
        log_truncated=detail.log_truncated or merged.is_truncated,
    )
    return detail, [*merged.part_names, *names]


def _is_script(assignment: Assignment) -> bool:
    return bool((assignment.definition.document.get("task") or {}).get("type") == "script")
