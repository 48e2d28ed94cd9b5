"""Stores the outputs and logs of attempts, one object for each output or log."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.errors import Unavailable
from punctual.engine.changes.run_results import log_key, output_key
from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.blobs import Blob, Blobs
from punctual.engine.ports.rows import Detail
from punctual.tasks.assignment import detail_of
from punctual.tasks.contract import Outcome

LOG_CONTENT_TYPE = "text/plain; charset=utf-8"


class AttemptResult(NamedTuple):
    """The outcome and log of one attempt."""

    assignment: Assignment
    outcome: Outcome
    log: bytes


def store_results(blobs: Blobs, results: Sequence[AttemptResult]) -> list[Detail | Unavailable]:
    """Store outputs and logs. Return for each attempt its detail, or the error of the store.

    A second store of an attempt replaces its own objects.
    """
    prepared = [_prepare(result) for result in results]
    objects = [blob for _, own_blobs in prepared for blob in own_blobs]
    failures = iter(blobs.put_many(objects) if objects else ())
    stored: list[Detail | Unavailable] = []
    for detail, own_blobs in prepared:
        failed = [failure for failure in islice(failures, len(own_blobs)) if failure is not None]
        stored.append(failed[0] if failed else detail)
    return stored


def _prepare(result: AttemptResult) -> tuple[Detail, list[Blob]]:
    """Return the detail of the attempt and the objects that it names."""
    outcome, log = result.outcome, result.log
    key, run = result.assignment.key, result.assignment.run
    detail = detail_of(result.assignment, outcome)
    if detail.discarded:
        return detail, []
    objects = []
    if log:
        name = log_key(key, run.run_id, run.attempt)
        objects.append(Blob(name, log, LOG_CONTENT_TYPE))
        detail = replace(detail, log_blob=name, log_size=len(log))
    if outcome.output:
        with_id = replace(detail, output=outcome.output)
        if with_id.short_output:  # the id of an event or a message stands in the run itself
            return with_id, objects
        name = output_key(key, run.run_id, run.attempt)
        objects.append(Blob(name, outcome.output, outcome.output_type))
        detail = replace(detail, output_blob=name, output_size=len(outcome.output))
    return detail, objects
