"""The open failures of the node's jobs, written in the commit of the history rows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from punctual.domain.failures import (
    FAILED_STATUSES,
    Acknowledgement,
    EndedRun,
    Failure,
    after_run,
    parse_failure_id,
)
from punctual.domain.run import RunStatus
from punctual.engine.ports.lists.failures import (
    MAX_COUNTED_FAILURES,
    FailureCounts,
    FailurePage,
)
from punctual.engine.ports.rows import JobKey, RunKey, RunRow
from punctual.engine.queries.cursor import number_in_cursor
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import Codec, from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

_FAILURE_CODEC = Codec(Failure, packed=True)
_OF_JOB = "WHERE tenant = ? AND job_id = ?"
_SELECT = "SELECT last, job_id, kind, failure FROM failures"
_INSERT = "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)"
_FailureColumns = tuple[int, str, str, bytes]


class SqliteFailures:
    """Opens and closes failures as runs end.

    The set of jobs with an open failure is in memory. So a run that succeeds in another job costs
    one look into the set.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._failing_jobs: set[JobKey] | None = None  # None until the first use
        self._closed_jobs: set[JobKey] = set()  # cancelled in this transaction

    def note_ended(self, rows: Mapping[RunKey, RunRow]) -> None:
        """Open and close failures by these runs, which are in the order of their ends."""
        failing_jobs = self._load_failing_jobs()
        success = RunStatus.SUCCESS
        by_job: dict[JobKey, list[RunRow]] = {}
        for key, row in rows.items():
            if row.run.status is success:
                if not (failing_jobs or by_job):
                    continue
                job_key = JobKey(key.tenant, key.job_id)
                if job_key not in failing_jobs and job_key not in by_job:
                    continue
            elif row.run.status in FAILED_STATUSES:
                job_key = JobKey(key.tenant, key.job_id)
            else:
                continue
            by_job.setdefault(job_key, []).append(row)
        for job_key, ended_rows in by_job.items():
            self._note(job_key, ended_rows)

    def _note(self, key: JobKey, ended_rows: Sequence[RunRow]) -> None:
        if key in self._closed_jobs:
            return
        before = after = self._load(key)
        for row in ended_rows:
            after = after_run(after, key.job_id, _ended_run(row))
        self._write(key, before, after)

    def _load(self, key: JobKey) -> Sequence[Failure]:
        db = self._transaction.db
        return self._decode(key.tenant, db.execute(f"{_SELECT} {_OF_JOB}", key).fetchall())

    def _decode(self, tenant: str, rows: Sequence[_FailureColumns]) -> list[Failure]:
        failures = []
        for _, job_id, kind, encoded in rows:
            try:
                failures.append(_FAILURE_CODEC.decode(encoded))
            except DECODING_ERRORS as error:
                self._transaction.damage.note("failures", (tenant, job_id, kind), error)
        return failures

    def _write(self, key: JobKey, before: Sequence[Failure], after: Sequence[Failure]) -> None:
        former_by_kind = {failure.kind: failure for failure in before}
        kinds = {failure.kind for failure in after}
        self._transaction.begin()
        db = self._transaction.db
        db.executemany(
            f"DELETE FROM failures {_OF_JOB} AND kind = ?",
            [(*key, kind) for kind in former_by_kind if kind not in kinds],
        )
        db.executemany(
            _INSERT,
            [
                _row(key.tenant, failure)
                for failure in after
                if former_by_kind.get(failure.kind) is not failure
            ],
        )
        failing_jobs = self._load_failing_jobs()
        if after:
            failing_jobs.add(key)
        else:
            failing_jobs.discard(key)

    def close(self, keys: Collection[JobKey]) -> None:
        """Close all failures of jobs that are cancelled or removed in this transaction."""
        self._closed_jobs.update(keys)
        failing_jobs = self._load_failing_jobs()
        closed = [key for key in keys if key in failing_jobs]
        if closed:
            self._transaction.begin()
            self._transaction.db.executemany(f"DELETE FROM failures {_OF_JOB}", closed)
            failing_jobs.difference_update(closed)

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> FailurePage:
        bound, values = "", tuple[Any, ...]()
        if after is not None:
            bound = " AND (last, job_id, kind) < (?, ?, ?)"
            values = (number_in_cursor(after[0]), *after[1:])
        with self._transaction:
            rows = self._transaction.db.execute(
                f"{_SELECT} INDEXED BY failures_by_last WHERE tenant = ?{bound} "
                "ORDER BY last DESC, job_id DESC, kind DESC LIMIT ?",
                (tenant, *values, limit + 1),
            ).fetchall()
            last, job_id, kind, _ = rows[limit - 1] if len(rows) > limit else (0, "", "", b"")
            return FailurePage(
                self._decode(tenant, rows[:limit]), (str(last), job_id, kind) if kind else None
            )

    def of_job(self, key: JobKey) -> Sequence[Failure]:
        with self._transaction:
            return self._load(key)

    def find(self, tenant: str, failure_id: str) -> Failure | None:
        key = JobKey(tenant, parse_failure_id(failure_id)[0])
        with self._transaction:
            failures = self._load(key)
        return next((failure for failure in failures if failure.failure_id == failure_id), None)

    def acknowledge(
        self, tenant: str, failure_id: str, acknowledgement: Acknowledgement
    ) -> Failure | None:
        with self._transaction:
            open_failure = self.find(tenant, failure_id)
            if open_failure is None:
                return None
            failure = replace(open_failure, acknowledged=acknowledgement)
            self._transaction.begin()
            self._transaction.db.execute(_INSERT, _row(tenant, failure))
            return failure

    def counts(self, tenant: str) -> FailureCounts:
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT acknowledged, count(*), min(first) FROM (SELECT acknowledged, first "
                "FROM failures INDEXED BY failures_by_last WHERE tenant = ? LIMIT ?) "
                "GROUP BY acknowledged",
                (tenant, MAX_COUNTED_FAILURES),
            ).fetchall()
        counts = {flag: (count, from_micros(first)) for flag, count, first in rows}
        acknowledged, acknowledged_since = counts.get(1, (0, None))
        unacknowledged, unacknowledged_since = counts.get(0, (0, None))
        return FailureCounts(
            acknowledged,
            unacknowledged,
            acknowledged_since,
            unacknowledged_since,
            has_more=acknowledged + unacknowledged >= MAX_COUNTED_FAILURES,
        )

    def _load_failing_jobs(self) -> set[JobKey]:
        if self._failing_jobs is None:
            rows = self._transaction.db.execute("SELECT DISTINCT tenant, job_id FROM failures")
            self._failing_jobs = {JobKey(*row) for row in rows.fetchall()}
        return self._failing_jobs

    def on_commit(self) -> None:
        self._closed_jobs.clear()

    def on_rollback(self) -> None:
        self._closed_jobs.clear()
        self._failing_jobs = None


def _ended_run(row: RunRow) -> EndedRun:
    return EndedRun(row.run, row.detail.error, row.detail.exit_code, row.detail.http_status)


def _row(tenant: str, failure: Failure) -> tuple[str, str, str, int, int, bool, bytes]:
    return (
        tenant,
        failure.job_id,
        failure.kind,
        to_micros(failure.first_at),
        to_micros(failure.last_at),
        failure.acknowledged is not None,
        _FAILURE_CODEC.encode(failure),
    )
