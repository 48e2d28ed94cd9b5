"""Artifacts: creation, limits, uses by jobs, deletion, and the cleanup of their bytes."""

import io
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from typing import Any

import pytest

from punctual.domain.artifacts import (
    ARTIFACT_REMOVAL_DELAY,
    MAX_ARTIFACT_BYTES,
    PENDING_ARTIFACT_RETENTION,
    Artifact,
    ArtifactStatus,
    artifact_blob_name,
    artifact_id_of,
)
from punctual.domain.errors import Conflict, Invalid, LimitExceeded, NotFound, Unavailable
from punctual.domain.identifiers import sortable_id
from punctual.domain.tenants.limits import UNLIMITED, TenantLimits
from punctual.engine.commands.artifact_cleanup import ArtifactCleanup
from punctual.engine.commands.artifacts import Artifacts, CreatedArtifact
from punctual.engine.commands.jobs import Jobs, Submission
from punctual.engine.ports.audit_log import Actor
from punctual.engine.queries.artifacts import MAX_LISTED_JOBS, ArtifactQueries
from punctual.engine.queries.views import JobView
from tests.support.builders import NOON, ManualClock
from tests.support.names.own_names import own_name
from tests.support.ports import a_change_applier, job_names, job_queries
from tests.support.simulation.memory import Memory
from tests.support.web_world import FixedMonitor

ANN = Actor("ann")
CONTENT = b"print('hello')"
ELF_ARM = b"\x7fELF\x02\x01" + bytes(12) + (183).to_bytes(2, "little") + bytes(44)


class Workshop:
    """The artifacts and jobs of one in-memory installation."""

    def __init__(self, limits: TenantLimits = UNLIMITED) -> None:
        self.clock = ManualClock(NOON)
        self.memory = Memory(self.clock)
        self._numbers: Iterator[int] = count(1)
        ports = self.memory.ports
        self.queries = ArtifactQueries(self.memory.artifacts, self.memory.blobs, ports.job_states)
        self.artifacts = Artifacts(
            *(self.memory.artifacts, self.memory.blobs, self.queries, ports.audit_log),
            *(self.clock, self.new_id, lambda _tenant: limits, frozenset({"x86_64"})),
        )
        self.cleanup = ArtifactCleanup(
            *(self.memory.artifacts, self.memory.blobs, self.queries, self.clock, self.new_id)
        )
        applier = a_change_applier(ports, self.clock, self.clock.monotonic)
        self.jobs = Jobs(
            job_states=ports.job_states,
            history=ports.history,
            blobs=ports.blobs,
            receipts=ports.receipts,
            wakeups=ports.wakeups,
            applier=applier,
            queries=job_queries(ports, self.clock, FixedMonitor()),
            clock=self.clock,
            new_id=self.new_id,
            names=job_names(ports, self.new_id),
            artifacts=self.artifacts,
        )

    def new_id(self) -> str:
        return sortable_id(self.clock(), next(self._numbers).to_bytes(10, "big"))

    def create(self, content: bytes = CONTENT, tenant: str = "acme") -> CreatedArtifact:
        digest = sha256(content).hexdigest()
        return self.artifacts.create(tenant, digest, len(content), "main.py", ANN)

    def upload(self, content: bytes = CONTENT, tenant: str = "acme") -> str:
        """Create an artifact and store its content. Return its id."""
        created = self.create(content, tenant)
        name = created.artifact.blob_name
        self.memory.blobs.blobs[name] = content
        self.memory.blobs.stored_at[name] = self.clock()
        return created.artifact.artifact_id

    def submit(self, artifact_id: str, runtime: str = "python", **fields: Any) -> Any:
        task = {"type": "script", "runtime": runtime, "artifact_id": artifact_id}
        document = {
            "name": own_name("report"),
            "schedule_type": "CRON",
            "cron_expression": "0 9 * * *",
            "task": task,
            **fields,
        }
        (answer,) = self.jobs.submit("acme", "ann", [Submission(document)])
        return answer

    def job(self, artifact_id: str, **fields: Any) -> str:
        view = self.submit(artifact_id, **fields)
        assert isinstance(view, JobView), view
        return view.state.job_id

    def status(self, artifact_id: str) -> ArtifactStatus | None:
        row: Artifact | None = self.memory.artifacts.load("acme", [artifact_id]).get(artifact_id)
        return None if row is None else row.status

    def has_content(self, content: bytes = CONTENT) -> bool:
        name = artifact_blob_name("acme", sha256(content).hexdigest())
        return name in self.memory.blobs.blobs


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


def refused_field(answer: Any) -> str:
    assert isinstance(answer, Invalid), answer
    (error,) = answer.errors
    assert error.field == "task.artifact_id"
    return error.message


def test_content_has_one_id_for_each_tenant(workshop: Workshop) -> None:
    first, again, other = workshop.create(), workshop.create(), workshop.create(tenant="globex")
    assert first.artifact.artifact_id == again.artifact.artifact_id
    assert first.artifact.artifact_id != other.artifact.artifact_id
    assert first.artifact.blob_name == f"artifacts/acme/{sha256(CONTENT).hexdigest()}"


def test_stored_content_needs_no_second_upload(workshop: Workshop) -> None:
    assert workshop.create().upload is not None
    artifact_id = workshop.upload()
    created = workshop.create()
    assert created.upload is None
    assert (created.artifact.artifact_id, created.artifact.status) == (artifact_id, "STORED")
    assert workshop.create(tenant="globex").upload is not None


def test_second_size_of_stored_content_is_wrong(workshop: Workshop) -> None:
    workshop.upload()
    workshop.create()
    with pytest.raises(Invalid, match="must be 14"):
        workshop.artifacts.create("acme", sha256(CONTENT).hexdigest(), 15, "a", ANN)


def test_job_needs_a_stored_artifact(workshop: Workshop) -> None:
    pending = workshop.create().artifact.artifact_id
    assert "no content yet" in refused_field(workshop.submit(pending))
    assert "names no artifact" in refused_field(workshop.submit(artifact_id_of("acme", "0" * 64)))
    foreign = workshop.upload(tenant="globex")
    assert "names no artifact" in refused_field(workshop.submit(foreign))
    assert workshop.job(workshop.upload())


def test_binary_of_another_architecture_is_refused(workshop: Workshop) -> None:
    arm = workshop.upload(ELF_ARM)
    assert refused_field(workshop.submit(arm, "binary")) == (
        "is a binary for arm64; only x86_64 runs here"
    )
    assert workshop.job(workshop.upload(ELF_ARM.replace(b"\xb7\0", b"\x3e\0")), runtime="binary")


def test_binary_of_another_architecture_in_a_zip_is_refused(workshop: Workshop) -> None:
    def zipped(program: bytes) -> bytes:
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("main", program)
        return data.getvalue()

    arm = workshop.upload(zipped(ELF_ARM))
    assert refused_field(workshop.submit(arm, "binary")) == (
        "is a binary for arm64; only x86_64 runs here"
    )
    assert workshop.job(arm, runtime="python"), "only a binary has to fit"
    intel = ELF_ARM.replace(b"\xb7\0", b"\x3e\0")
    assert workshop.job(workshop.upload(zipped(intel)), runtime="binary")


def test_change_to_a_missing_artifact_is_refused(workshop: Workshop) -> None:
    job_id = workshop.job(workshop.upload())

    def revise(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "task": {**old["task"], "artifact_id": artifact_id_of("acme", "0" * 64)}}

    with pytest.raises(Invalid, match="names no artifact"):
        workshop.jobs.change("acme", job_id, revise)


def test_used_artifact_is_not_deleted(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    job_id = workshop.job(artifact_id)
    with pytest.raises(Conflict, match=job_id):
        workshop.artifacts.delete("acme", artifact_id, ANN)
    assert [job.job_id for job in workshop.queries.view("acme", artifact_id).jobs] == [job_id]
    workshop.jobs.cancel("acme", job_id)
    assert workshop.queries.view("acme", artifact_id).jobs == []
    workshop.artifacts.delete("acme", artifact_id, ANN)
    with pytest.raises(NotFound):
        workshop.queries.view("acme", artifact_id)


def test_list_names_the_jobs_that_use_each_artifact(workshop: Workshop) -> None:
    first, second, unused = (workshop.upload(b"%d" % number) for number in range(3))
    former = workshop.job(first, name="former")
    workshop.jobs.cancel("acme", former)
    jobs = {
        first: [workshop.job(first, name=f"first {number}") for number in range(2)],
        second: [workshop.job(second, name="second")],
        unused: [],
    }
    views = workshop.queries.page("acme", 10, None).items
    listed = {view.artifact.artifact_id: [job.job_id for job in view.jobs] for view in views}
    assert listed == jobs
    assert not any(view.more_jobs for view in views)


def test_list_names_a_few_jobs_and_reads_few_uses(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact_ids = [workshop.upload(b"%d" % number) for number in range(3)]
    jobs = [
        workshop.job(artifact_ids[0], name=f"job {number}") for number in range(MAX_LISTED_JOBS + 3)
    ]
    for number in range(MAX_LISTED_JOBS):
        workshop.job(artifact_ids[1], name=f"other {number}")
    reads: list[int] = []
    load = workshop.memory.job_states.load

    def counted_load(keys: Any) -> Any:
        reads.append(len(keys))
        return load(keys)

    monkeypatch.setattr(workshop.memory.job_states, "load", counted_load)
    views = {
        view.artifact.artifact_id: view for view in workshop.queries.page("acme", 10, None).items
    }
    assert reads == [2 * MAX_LISTED_JOBS], "one batch for the page"
    shown = views[artifact_ids[0]]
    assert [job.job_id for job in shown.jobs] == jobs[:MAX_LISTED_JOBS]
    assert [views[artifact_id].more_jobs for artifact_id in artifact_ids] == [True, False, False]
    monkeypatch.undo()
    workshop.jobs.cancel("acme", jobs[0])
    view = next(
        view
        for view in workshop.queries.page("acme", 10, None).items
        if view.artifact.artifact_id == artifact_ids[0]
    )
    assert ([job.job_id for job in view.jobs], view.more_jobs) == (jobs[1:MAX_LISTED_JOBS], True)
    whole = workshop.queries.view("acme", artifact_ids[0])
    assert ([job.job_id for job in whole.jobs], whole.more_jobs) == (jobs[1:], False)


def test_answer_about_one_artifact_says_that_it_names_not_all_jobs(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.engine.queries.artifacts.MAX_SHOWN_JOBS", 2)
    artifact_id = workshop.upload()
    jobs = [workshop.job(artifact_id, name=f"job {number}") for number in range(3)]
    view = workshop.queries.view("acme", artifact_id)
    assert ([job.job_id for job in view.jobs], view.more_jobs) == (jobs[:2], True)
    workshop.jobs.cancel("acme", jobs[2])
    assert workshop.queries.view("acme", artifact_id).more_jobs, "a former job may be one"


def test_former_artifact_of_a_job_is_deleted(workshop: Workshop) -> None:
    first, second = workshop.upload(), workshop.upload(b"other")
    job_id = workshop.job(first)

    def revise(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "task": {**old["task"], "artifact_id": second}}

    workshop.jobs.change("acme", job_id, revise)
    workshop.artifacts.delete("acme", first, ANN)
    with pytest.raises(Conflict):
        workshop.artifacts.delete("acme", second, ANN)


def test_live_run_keeps_the_artifact_of_its_definition(workshop: Workshop) -> None:
    first, second = workshop.upload(), workshop.upload(b"other")
    job_id = workshop.job(first)
    workshop.jobs.run_now("acme", job_id)

    def revise(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "task": {**old["task"], "artifact_id": second}}

    workshop.jobs.change("acme", job_id, revise)
    with pytest.raises(Conflict, match=job_id):
        workshop.artifacts.delete("acme", first, ANN)


def test_deleted_artifact_takes_no_new_job_and_its_bytes_go_later(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    workshop.create()
    workshop.artifacts.delete("acme", artifact_id, ANN)
    assert "names no artifact" in refused_field(workshop.submit(artifact_id))
    workshop.clock.advance(ARTIFACT_REMOVAL_DELAY - timedelta(seconds=1))
    assert workshop.cleanup.step(None).removed == 0
    assert workshop.has_content()
    workshop.clock.advance(timedelta(seconds=1))
    assert workshop.cleanup.step(None).removed == 1
    assert not workshop.has_content()
    assert workshop.status(artifact_id) is None


def test_upload_brings_a_deleted_artifact_back(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    workshop.artifacts.delete("acme", artifact_id, ANN)
    assert workshop.create().upload is None
    workshop.clock.advance(2 * ARTIFACT_REMOVAL_DELAY)
    assert workshop.cleanup.step(None).removed == 0
    assert workshop.job(artifact_id)


def test_job_that_was_created_while_its_artifact_was_deleted_keeps_it(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    use, is_first = workshop.artifacts.use, True

    def use_then_delete(tenant: str, uses: Any) -> Any:
        nonlocal is_first
        problems = use(tenant, uses)
        if is_first:  # the delete comes between the note and the job
            is_first = False
            workshop.artifacts.delete("acme", artifact_id, ANN)
        return problems

    workshop.artifacts.use = use_then_delete  # type: ignore[method-assign]
    workshop.job(artifact_id)
    assert workshop.status(artifact_id) is ArtifactStatus.DELETED
    assert workshop.queries.link("acme", artifact_id) is not None
    workshop.clock.advance(2 * ARTIFACT_REMOVAL_DELAY)
    assert workshop.cleanup.step(None).removed == 0
    assert workshop.status(artifact_id) is ArtifactStatus.STORED
    assert workshop.job(artifact_id)


def test_artifact_under_removal_takes_no_upload(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact_id = workshop.upload()
    workshop.artifacts.delete("acme", artifact_id, ANN)
    workshop.clock.advance(2 * ARTIFACT_REMOVAL_DELAY)

    def fail(_names: Any) -> None:
        raise Unavailable("the store does not answer")

    with monkeypatch.context() as patches:
        patches.setattr(workshop.memory.blobs, "delete", fail)
        with pytest.raises(Unavailable):
            workshop.cleanup.step(None)
        with pytest.raises(Unavailable, match="is being removed"):
            workshop.create()
        assert workshop.queries.link("acme", artifact_id) is None
    assert workshop.cleanup.step(None).removed == 1
    assert workshop.create().upload is not None


def test_upload_that_did_not_come_counts_for_a_day() -> None:
    workshop = Workshop(TenantLimits(artifacts=1))
    workshop.create()
    with pytest.raises(LimitExceeded, match="at most 1 artifacts"):
        workshop.create(b"other")
    workshop.clock.advance(PENDING_ARTIFACT_RETENTION)
    assert workshop.create(b"other").upload is not None


def test_total_size_is_limited() -> None:
    workshop = Workshop(TenantLimits(artifact_mb=1))
    megabyte = 1024 * 1024
    workshop.artifacts.create("acme", "0" * 64, megabyte - 10, "a", ANN)
    with pytest.raises(LimitExceeded, match="at most 1 MB"):
        workshop.artifacts.create("acme", "1" * 64, 11, "b", ANN)
    assert workshop.artifacts.create("acme", "1" * 64, 10, "b", ANN).upload is not None
    assert workshop.artifacts.create("globex", "1" * 64, 11, "b", ANN).upload is not None


def test_tenant_without_limits_has_the_default_ones(workshop: Workshop) -> None:
    largest = TenantLimits().max_artifact_mb * 1024 * 1024 // MAX_ARTIFACT_BYTES
    for number in range(largest):
        workshop.artifacts.create("acme", f"{number:064x}", MAX_ARTIFACT_BYTES, "a", ANN)
    with pytest.raises(LimitExceeded, match="at most 20,480 MB"):
        workshop.artifacts.create("acme", "a" * 64, MAX_ARTIFACT_BYTES, "a", ANN)
    for number in range(largest, 1_000):
        workshop.artifacts.create("acme", f"{number:064x}", 1, "a", ANN)
    with pytest.raises(LimitExceeded, match="at most 1,000 artifacts"):
        workshop.artifacts.create("acme", "a" * 64, 1, "a", ANN)


def test_operator_may_raise_the_default_limits() -> None:
    workshop = Workshop(TenantLimits(artifacts=2_000))
    links = [
        workshop.artifacts.create("acme", f"{number:064x}", 1, "a", ANN) for number in range(2_000)
    ]
    assert len({link.artifact.artifact_id for link in links}) == 2_000
    with pytest.raises(LimitExceeded, match="at most 2,000 artifacts"):
        workshop.artifacts.create("acme", "a" * 64, 1, "a", ANN)


def test_deleted_artifact_makes_room() -> None:
    workshop = Workshop(TenantLimits(artifacts=1))
    artifact_id = workshop.upload()
    with pytest.raises(LimitExceeded):
        workshop.create(b"other")
    workshop.artifacts.delete("acme", artifact_id, ANN)
    assert workshop.create(b"other").upload is not None


def test_cleanup_removes_a_blob_without_a_row_after_a_day(workshop: Workshop) -> None:
    name = artifact_blob_name("acme", sha256(CONTENT).hexdigest())
    workshop.memory.blobs.blobs[name] = CONTENT
    workshop.memory.blobs.stored_at[name] = workshop.clock()
    workshop.clock.advance(PENDING_ARTIFACT_RETENTION - timedelta(seconds=1))
    assert workshop.cleanup.step(None).removed == 0
    workshop.clock.advance(timedelta(seconds=1))
    assert workshop.cleanup.step(None).removed == 1
    assert not workshop.has_content()


def test_cleanup_keeps_an_upload_that_no_call_has_seen(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    workshop.clock.advance(PENDING_ARTIFACT_RETENTION - timedelta(hours=1))
    assert workshop.cleanup.step(None).removed == 0
    workshop.clock.advance(10 * PENDING_ARTIFACT_RETENTION)
    assert workshop.status(artifact_id) is ArtifactStatus.STORED
    assert workshop.cleanup.step(None).removed == 0


def test_cleanup_forgets_the_uses_of_former_jobs(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    workshop.jobs.cancel("acme", workshop.job(artifact_id))
    kept = workshop.job(artifact_id)
    workshop.clock.advance(2 * ARTIFACT_REMOVAL_DELAY)
    workshop.cleanup.step(None)
    uses = workshop.memory.artifacts.uses("acme", artifact_id, None, 10)
    assert [use.job_id for use in uses] == [kept]


def test_audit_names_creation_and_deletion(workshop: Workshop) -> None:
    artifact_id = workshop.upload()
    workshop.artifacts.delete("acme", artifact_id, ANN)
    notes = [entry.note for entry in _audit_entries(workshop, workshop.clock())]
    assert [(note.action, note.actor) for note in notes] == [
        ("artifact.delete", ANN),
        ("artifact.create", ANN),
    ]
    assert [(note.after or note.before or {})["artifact_id"] for note in notes] == [artifact_id] * 2


def _audit_entries(workshop: Workshop, now: datetime) -> Any:
    from punctual.engine.ports.audit_log import AuditFilters

    return workshop.memory.ports.audit_log.page("acme", AuditFilters(), 10, None, now).entries
