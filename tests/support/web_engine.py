"""An engine for tests of the web. It keeps jobs and runs in dictionaries and runs nothing."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, cast

import msgspec
from msgspec import UNSET

from punctual.domain.errors import (
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    PreconditionFailed,
    PunctualError,
)
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState, JobStatus, MisfirePolicy
from punctual.domain.run import ENDED_RUN_STATUSES, Run, RunStatus, Trigger
from punctual.domain.schedules.schedule import next_after
from punctual.domain.tenants.tokens import Token
from punctual.engine.commands.definition import compile_definition
from punctual.engine.commands.jobs import Jobs, Submission
from punctual.engine.commands.tokens import Tokens
from punctual.engine.ports.monitor import Health, Stats
from punctual.engine.ports.rows import DefinitionRow, Detail
from punctual.engine.ports.token_rows import TokenCounts
from punctual.engine.queries.audit import AuditQueries
from punctual.engine.queries.jobs import JobFilters, JobQueries, RunFilters
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import (
    Explanation,
    JobView,
    LogPiece,
    Output,
    Page,
    RunView,
    UpcomingOccurrence,
)
from tests.support.memory_audit import MemoryAudit

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
replace = msgspec.structs.replace


class MemoryTokens:
    """Token rows by id and by hash."""

    def __init__(self) -> None:
        self.rows: dict[str, Token] = {}
        self.wishes: dict[tuple[str, str], str] = {}

    def put(self, token: Token, token_hash: str) -> None:
        self.rows[token_hash] = token

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        return next(
            (token for token in self._kept(tenant, now) if token.token_id == token_id), None
        )

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> list[Token]:
        tokens = sorted(self._kept(tenant, now), key=lambda token: token.token_id, reverse=True)
        return [token for token in tokens if before is None or token.token_id < before][:limit]

    def store_revocation_request(
        self, tenant: str, token_id: str, wish: str, old: str = ""
    ) -> str | None:
        if old and self.wishes.get((tenant, token_id)) == old:
            self.wishes[tenant, token_id] = wish
        return self.wishes.setdefault((tenant, token_id), wish)

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        token = self.get(tenant, token_id, now)
        if token is None or token.revoked_at is not None:
            return token
        (hashed,) = (at for at, stored in self.rows.items() if stored == token)
        self.rows[hashed] = token._replace(revoked_at=now)
        return self.rows[hashed]

    def count(self, tenant: str, now: datetime) -> TokenCounts:
        tokens = self._kept(tenant, now)
        return TokenCounts(sum(token.is_valid(now) for token in tokens), len(tokens))

    def find(self, token_hash: str) -> Token | None:
        return self.rows.get(token_hash)

    def record_use(self, token_hash: str, now: datetime) -> None:
        self.rows[token_hash] = self.rows[token_hash]._replace(last_used_at=now)

    def _kept(self, tenant: str, now: datetime) -> list[Token]:
        return [
            token
            for token in self.rows.values()
            if token.tenant == tenant and ((at := token.delete_at()) is None or at > now)
        ]


class MemoryEngine:
    """Both services in one. Every call raises `error` if it is set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now
        self.error: Exception | None = None
        self.views: dict[tuple[str, str], JobView] = {}
        self.ordered: dict[tuple[str, str], dict[str, RunView]] = {}
        self.receipts: dict[tuple[str, str], tuple[str, Any]] = {}
        self.outputs: dict[str, Output] = {}
        self.asked: list[tuple[Any, ...]] = []
        self._ids = count(1)
        self.log = MemoryAudit()
        self.audit = AuditQueries(self.log, cast(Any, self))
        self.tokens = Tokens(
            MemoryTokens(),
            lambda: bytes(32),
            self.clock,
            self.new_id,
            self._random,
            "local",
            self.log,
        )

    def _random(self, size: int) -> bytes:
        return next(self._ids).to_bytes(size, "big")

    @property
    def as_jobs(self) -> Jobs:
        return cast(Jobs, self)

    @property
    def as_search(self) -> JobQueries:
        return cast(JobQueries, self)

    def clock(self) -> datetime:
        return self.now

    def new_id(self) -> str:
        return sortable_id(self.now, next(self._ids).to_bytes(10, "big"))

    def submit(
        self, tenant: str, caller: str, submissions: Sequence[Submission], by: Any = None
    ) -> list[JobView | PunctualError]:
        self._ask("submit", tenant, caller, len(submissions))
        return [self._submit(tenant, caller, submission) for submission in submissions]

    def repeated(self, tenant: str, idempotency_key: str, fingerprint: str) -> JobView | None:
        known = self.receipts.get((tenant, idempotency_key))
        return known[1] if known is not None and known[0] == fingerprint else None

    def _submit(self, tenant: str, caller: str, submission: Submission) -> JobView | PunctualError:
        try:
            view: JobView = self._once(
                tenant,
                submission.idempotency_key,
                submission.fingerprint,
                lambda: self._create(tenant, caller, submission.document),
            )
        except PunctualError as error:
            return error
        return view

    def _once(self, tenant: str, key: str | None, fingerprint: str, make: Callable[[], Any]) -> Any:
        if key is None:
            return make()
        known = self.receipts.get((tenant, key))
        if known is None:
            self.receipts[tenant, key] = known = (fingerprint, make())
        if known[0] != fingerprint:
            raise Invalid.of(FieldError("Idempotency-Key", "was used for another request"))
        return known[1]

    def _create(self, tenant: str, caller: str, document: dict[str, Any]) -> JobView:
        job_id = self.new_id()
        view = JobView(
            self._head(tenant, job_id, document, 1), self._body(job_id, document, caller)
        )
        self.views[tenant, job_id] = view
        self.ordered[tenant, job_id] = {}
        return view

    def _head(self, tenant: str, job_id: str, document: dict[str, Any], edition: int) -> JobState:
        meaning = compile_definition(document, job_id, "b", self.now)
        at = next_after(meaning.schedule, self.now - timedelta(microseconds=1))
        return JobState(
            tenant=tenant,
            job_id=job_id,
            version=edition,
            edition=edition,
            definition=1,
            status=JobStatus.SCHEDULED,
            kind=meaning.kind,
            created_at=self.now,
            updated_at=self.now,
            schedule=meaning.schedule,
            rules={1: meaning.rules},
            limits=meaning.limits,
            next_at=at,
        )

    def _body(self, job_id: str, document: dict[str, Any], caller: str) -> DefinitionRow:
        fields = {name: value for name, value in document.items() if name != "payload"}
        return DefinitionRow(
            "t",
            job_id,
            "b",
            1,
            self.now,
            document["name"],
            fields,
            caller,
            document.get("tags") or {},
            document.get("payload"),
        )

    def change(
        self,
        tenant: str,
        job_id: str,
        revise: Callable[[dict[str, Any]], dict[str, Any]],
        if_match: int | None = None,
        by: Any = None,
    ) -> JobView:
        view = self._matching(tenant, job_id, if_match)
        if view.state.status is JobStatus.CANCELLED:
            raise Conflict("The job is CANCELLED.")
        old = dict(view.definition.document)
        if view.definition.payload is not None:
            old["payload"] = view.definition.payload
        document = revise(old)
        head = self._head(tenant, job_id, document, view.state.edition + 1)
        body = self._body(job_id, document, view.definition.created_by)
        return self._put(JobView(replace(head, state=view.state.status), body))

    def pause(
        self, tenant: str, job_id: str, if_match: int | None = None, by: Any = None
    ) -> JobView:
        return self._to(JobStatus.PAUSED, tenant, job_id, if_match)

    def resume(
        self,
        tenant: str,
        job_id: str,
        missed: MisfirePolicy | None = None,
        if_match: int | None = None,
        by: Any = None,
    ) -> JobView:
        self._ask("resume", missed)
        return self._to(JobStatus.SCHEDULED, tenant, job_id, if_match)

    def cancel(
        self, tenant: str, job_id: str, if_match: int | None = None, by: Any = None
    ) -> JobView:
        return self._to(JobStatus.CANCELLED, tenant, job_id, if_match, final=True)

    def _to(
        self, state: JobStatus, tenant: str, job_id: str, if_match: int | None, final: bool = False
    ) -> JobView:
        view = self._matching(tenant, job_id, if_match)
        if view.state.status is JobStatus.CANCELLED and not final:
            raise Conflict("The job is CANCELLED.")
        return self._put(view._replace(state=replace(view.state, state=state)))

    def _matching(self, tenant: str, job_id: str, if_match: int | None) -> JobView:
        view = self.job(tenant, job_id)
        if if_match is not None and view.state.edition != if_match:
            raise PreconditionFailed("The job has another version by now.")
        return view

    def _put(self, view: JobView) -> JobView:
        self.views[view.state.tenant, view.state.job_id] = view
        return view

    def run_now(
        self,
        tenant: str,
        job_id: str,
        payload: Any = UNSET,
        key: str | None = None,
        fingerprint: str = "",
        by: Any = None,
    ) -> RunView:
        self.job(tenant, job_id)
        return cast(
            RunView,
            self._once(tenant, key, fingerprint, lambda: self._order(tenant, job_id, payload, "")),
        )

    def retry(
        self,
        tenant: str,
        job_id: str,
        run_id: str,
        key: str | None = None,
        fingerprint: str = "",
        by: Any = None,
    ) -> Sliced[RunView]:
        yield
        if self.run(tenant, job_id, run_id).run.status not in ENDED_RUN_STATUSES:
            raise Conflict("This run is alive.")
        return cast(
            RunView,
            self._once(
                tenant, key, fingerprint, lambda: self._order(tenant, job_id, UNSET, run_id)
            ),
        )

    def _order(self, tenant: str, job_id: str, payload: Any, retried_from: str) -> RunView:
        run = Run(
            self.new_id(),
            RunStatus.QUEUED,
            1,
            self.now,
            self.now,
            self.now,
            self.now,
            Trigger.RETRY if retried_from else Trigger.RUN_NOW,
            has_own_payload=payload is not UNSET,
            retried_from=retried_from,
        )
        has_payload = payload is not UNSET
        return self.put_run(
            RunView(
                tenant,
                job_id,
                run,
                Detail(),
                "2026b",
                payload=payload if has_payload else None,
                has_payload=has_payload,
            )
        )

    def put_run(self, view: RunView) -> RunView:
        self.ordered[view.tenant, view.job_id][view.run.run_id] = view
        return view

    def cancel_run(self, tenant: str, job_id: str, run_id: str, by: Any = None) -> RunView:
        view = self.run(tenant, job_id, run_id)
        if view.run.status in ENDED_RUN_STATUSES:
            raise Conflict("The run has ended already.")
        run = replace(view.run, status=RunStatus.CANCELLED, ended_at=self.now)
        return self.put_run(view._replace(run=run))

    def backfill(
        self,
        tenant: str,
        job_id: str,
        start: datetime,
        end: datetime,
        dry_run: bool,
        by: Any = None,
    ) -> Sliced[Sequence[datetime]]:
        self.job(tenant, job_id)
        yield
        return [start]

    def job(self, tenant: str, job_id: str) -> JobView:
        self._ask("job", tenant, job_id)
        view = self.views.get((tenant, job_id))
        if view is None:
            raise NotFound("There is no such job.")
        return view

    def latest(self, head: JobState) -> RunView | None:
        return self.job(head.tenant, head.job_id).latest_run

    def jobs(
        self, tenant: str, filters: JobFilters, limit: int, after: tuple[str, ...] | None
    ) -> Sliced[Page]:
        self._ask("jobs", filters, limit, after)
        yield
        job_ids = sorted((k[1] for k in self.views if k[0] == tenant), reverse=True)
        views = [
            view
            for job_id in job_ids
            if (after is None or job_id < after[0])
            and filters.matches((view := self.views[tenant, job_id]).state, view.definition)
        ]
        more = len(views) > limit
        return Page(views[:limit], (views[limit - 1].state.job_id,) if more else None)

    def run(self, tenant: str, job_id: str, run_id: str) -> RunView:
        self.job(tenant, job_id)
        view = self.ordered[tenant, job_id].get(run_id)
        if view is None:
            raise NotFound("There is no such run.")
        return view

    def runs(
        self,
        tenant: str,
        job_id: str | None,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
    ) -> Sliced[Page]:
        self._ask("runs", job_id, filters, limit, after)
        yield
        if job_id is not None:
            self.job(tenant, job_id)
        views = [
            view
            for (owner, job), runs in self.ordered.items()
            if owner == tenant and job_id in (None, job)
            for view in runs.values()
            if filters.matches(view.run)
        ]
        views.sort(key=lambda view: view.run.run_id, reverse=True)
        remaining = [view for view in views if after is None or view.run.run_id < after[0]]
        more = len(remaining) > limit
        return Page(remaining[:limit], (remaining[limit - 1].run.run_id,) if more else None)

    def output(self, tenant: str, job_id: str, run_id: str) -> Output:
        self.run(tenant, job_id, run_id)
        if run_id not in self.outputs:
            raise NotFound("The run has no output, or none yet.")
        return self.outputs[run_id]

    def logs(self, tenant: str, job_id: str, run_id: str, after: int) -> LogPiece:
        return LogPiece(self.output(tenant, job_id, run_id).data[after:])

    def explain(self, tenant: str, job_id: str, at: datetime | None) -> Sliced[Explanation]:
        yield
        self.job(tenant, job_id)
        self._ask("explain", at)
        at = at or self.now
        return Explanation(at, at, "PLANNED", "It is still to come.", None, None, at)

    def upcoming(
        self, tenant: str, start: datetime, end: datetime, limit: int, after: tuple[str, ...] | None
    ) -> Sliced[Page]:
        self._ask("upcoming", start, end, limit, after)
        yield
        occurrences = [
            UpcomingOccurrence(
                view.state.next_at, view.state.next_at, view.state.job_id, view.definition.name
            )
            for view in self.views.values()
            if view.state.next_at is not None
        ]
        return Page(occurrences[:limit], None)

    def stats(self, tenant: str) -> Stats:
        self._ask("stats", tenant)
        lateness = {"p50": 0.1, "p99": 0.2, "max": 0.3}
        counts = {"started": 1, "succeeded": 1, "failed": 0}
        minute = {"minute": self.now, **counts, "lateness_ms": lateness}
        return Stats(
            {"SCHEDULED": 1}, {}, [minute], lateness, {"depth": 0, "oldest_seconds": 0}, []
        )

    def health(self) -> Health:
        self._ask("health")
        return Health("ok", 0.5, self.now, self.now, ("http", "event"))

    def _ask(self, *call: Any) -> None:
        self.asked.append(call)
        if self.error is not None:
            raise self.error
