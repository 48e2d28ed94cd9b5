"""Audit notes: the swaps that are noted, the ids, the filters and the view of an entry."""

from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobPause, JobState, JobStatus
from punctual.domain.run import Reason, RunStatus, Trigger, WaitingRun
from punctual.domain.timestamps import format_time
from punctual.engine.commands import audit
from punctual.engine.ports.audit_log import (
    Actor,
    AuditEntry,
    AuditFilters,
    Note,
    NoteWithSubjects,
    Subject,
)
from punctual.engine.queries.audit import AuditEntryView
from punctual.web.http.request import MAX_ACTOR_CHARACTERS, Caller, Request, actor_of
from punctual.web.views.audit import MAX_VALUE_BYTES, audit_entry_json
from tests.support.builders import JOB, NOON, RUN, a_definition_row, a_job_state, a_run, after

ADA = Actor("ada", "0193e2b4-7b12-7000-8000-000000000000", "203.0.113.9", "request-1")
WITH_WAITING_RUN = a_job_state(wait_queue=(WaitingRun(RUN, 1, NOON, NOON, NOON),))
WITH_QUEUED_RUN = a_job_state(runs=(a_run(),))
WITH_CANCEL_REQUEST = a_job_state(
    runs=(a_run(status=RunStatus.RUNNING, token=1, cancel_reason=Reason.CANCELLED),)
)
WITH_RUNNING_RUN = a_job_state(runs=(a_run(status=RunStatus.RUNNING, token=1),))
BLANK = replace(a_job_state(), is_blank=True)
PAUSED = a_job_state(version=2, edition=2, status=JobStatus.PAUSED)


def a_note(action: str, **fields: Any) -> Note:
    return Note(ADA, action, NOON, **fields)


@pytest.mark.parametrize(
    ("action", "old", "new"),
    [
        (audit.JOB_CREATE, None, a_job_state()),
        (audit.JOB_CREATE, BLANK, a_job_state()),
        (audit.JOB_UPDATE, a_job_state(), a_job_state(version=2, edition=2)),
        (audit.JOB_PAUSE, a_job_state(), PAUSED),
        (audit.JOB_RESUME, PAUSED, a_job_state(version=3, edition=3)),
        (audit.JOB_CANCEL, a_job_state(), a_job_state(edition=2, status=JobStatus.CANCELLED)),
        (audit.RUN_ORDER, a_job_state(), WITH_QUEUED_RUN),
        (audit.RUN_ORDER, a_job_state(), WITH_WAITING_RUN),
        (audit.RUN_RETRY, a_job_state(), WITH_QUEUED_RUN),
        (audit.JOB_BACKFILL, a_job_state(), a_job_state(runs=(a_run(trigger=Trigger.BACKFILL),))),
        (
            audit.RUN_CANCEL,
            WITH_QUEUED_RUN,
            a_job_state(unrecorded=(a_run(status=RunStatus.CANCELLED),)),
        ),
        (audit.RUN_CANCEL, WITH_RUNNING_RUN, WITH_CANCEL_REQUEST),
        (audit.RUN_CANCEL, WITH_WAITING_RUN, a_job_state()),
    ],
)
def test_swap_that_does_the_command_is_noted(
    action: str, old: JobState | None, new: JobState
) -> None:
    note = audit.note_for_swap(a_note(action, run_id=RUN), old, new)
    assert note is not None
    assert (note.actor, note.action, note.at) == (ADA, action, NOON)


@pytest.mark.parametrize(
    ("action", "old", "new"),
    [
        (audit.JOB_CREATE, None, BLANK),
        (audit.JOB_UPDATE, None, BLANK),
        (audit.JOB_PAUSE, a_job_state(), a_job_state(version=2, unrecorded=())),
        (audit.JOB_CANCEL, a_job_state(unrecorded=(a_run(),)), a_job_state(version=2)),
        (audit.RUN_ORDER, WITH_QUEUED_RUN, a_job_state(version=2, runs=(a_run(send_count=1),))),
        (audit.RUN_ORDER, WITH_WAITING_RUN, WITH_QUEUED_RUN),
        (audit.JOB_BACKFILL, a_job_state(), WITH_QUEUED_RUN),
        (audit.RUN_CANCEL, WITH_CANCEL_REQUEST, WITH_CANCEL_REQUEST),
        (
            audit.RUN_CANCEL,
            WITH_CANCEL_REQUEST,
            a_job_state(unrecorded=(a_run(status=RunStatus.CANCELLED),)),
        ),
        (audit.RUN_CANCEL, a_job_state(), a_job_state(version=2)),
    ],
)
def test_swap_that_only_finishes_earlier_work_is_not_noted(
    action: str, old: JobState | None, new: JobState
) -> None:
    assert audit.note_for_swap(a_note(action, run_id=RUN), old, new) is None


def test_status_change_is_noted_with_both_statuses() -> None:
    note = audit.note_for_swap(
        a_note(audit.JOB_RESUME, after={"missed": "SKIP"}), PAUSED, a_job_state()
    )
    assert note is not None
    assert note.before == {"status": "PAUSED"}
    assert note.after == {"missed": "SKIP", "status": "SCHEDULED"}


def test_change_of_a_pause_is_noted_with_time_and_note_before_and_after() -> None:
    pause = JobPause(at=NOON, until=after(60), note="a move")
    note = audit.note_for_swap(
        a_note(audit.JOB_PAUSE, after=audit.pause_fields(None, "a long move")),
        replace(PAUSED, pause=pause),
        replace(PAUSED, edition=3, pause=replace(pause, until=None, note="a long move")),
    )
    assert note is not None
    assert note.before == {"until": format_time(after(60)), "note": "a move"}
    assert note.after == {"note": "a long move"}


def test_backfill_note_counts_its_own_runs() -> None:
    """Runs that the schedule made at the same time do not count."""
    backfill_runs = [a_run(f"r{number}", trigger=Trigger.BACKFILL) for number in range(7)]
    new_state = a_job_state(runs=(*backfill_runs, a_run("due")))
    note = audit.note_for_swap(
        a_note(audit.JOB_BACKFILL), a_job_state(runs=(backfill_runs[0],)), new_state
    )
    assert note is not None
    assert note.count == 6


def test_audit_ids_are_unique_and_sort_by_time() -> None:
    entries = [
        AuditEntry("acme", a_note(audit.JOB_CREATE), Subject("a", 1)),
        AuditEntry("acme", a_note(audit.JOB_CREATE), Subject("b", 1)),
        AuditEntry("acme", a_note(audit.JOB_CANCEL), Subject("a", 2)),
        AuditEntry("acme", replace(a_note(audit.JOB_CREATE), at=after(1)), Subject("a", 1)),
        AuditEntry("other", a_note(audit.JOB_CREATE), Subject("a", 1)),
    ]
    ids = [entry.audit_id for entry in entries]
    assert len(set(ids)) == len(ids)
    assert max(ids) == ids[3]
    soon = replace(a_note(audit.JOB_CREATE), at=after(0.000_001))
    assert AuditEntry("acme", soon, Subject("a", 1)).audit_id > max(ids[:3])
    assert ids == [AuditEntry(*entry).audit_id for entry in entries]


def test_audit_list_has_no_duplicates_and_the_newest_first() -> None:
    old, new = a_note(audit.JOB_CREATE), replace(a_note(audit.JOB_PAUSE), at=after(1))
    notes = [NoteWithSubjects(old, [Subject(JOB, 1)]), NoteWithSubjects(new, [Subject(JOB, 2)])]
    entries = audit.newest_first("acme", [*notes, *notes], AuditFilters())
    assert [entry.note.action for entry in entries] == [audit.JOB_PAUSE, audit.JOB_CREATE]


@pytest.mark.parametrize(
    ("filters", "admitted"),
    [
        (AuditFilters(), True),
        (AuditFilters(caller="ada"), True),
        (AuditFilters(caller="bob"), False),
        (AuditFilters(action=audit.JOB_PAUSE), True),
        (AuditFilters(action=audit.JOB_RESUME), False),
        (AuditFilters(start=NOON), True),
        (AuditFilters(start=after(0.001)), False),
        (AuditFilters(end=NOON), False),
        (AuditFilters(end=after(0.001)), True),
        (AuditFilters(job_id=JOB), True),
        (AuditFilters(job_id="other"), False),
    ],
)
def test_audit_filters_include_the_start_and_exclude_the_end(
    filters: AuditFilters, admitted: bool
) -> None:
    notes = [NoteWithSubjects(a_note(audit.JOB_PAUSE), [Subject(JOB, 2)])]
    assert bool(audit.newest_first("acme", notes, filters)) is admitted


def test_changed_definition_shows_the_fields_that_differ_with_defaults() -> None:
    before = a_definition_row(document={"name": "n", "schedule_type": "IMMEDIATE"}, tags={})
    document = {**before.document, "priority": "HIGH", "retry": {"multiplier": 3}}
    view = update(before, replace(before, ref="2-x", document=document))
    retry = {"backoff_seconds": 5, "max_backoff_seconds": 300, "multiplier": 2, "jitter": True}
    assert view["before"] == {"priority": "NORMAL", "retry": retry}
    assert view["after"] == {"priority": "HIGH", "retry": {**retry, "multiplier": 3}}


def test_long_value_is_shown_by_its_size() -> None:
    before = a_definition_row(
        document={"name": "n", "schedule_type": "IMMEDIATE"}, payload={"a": 1}
    )
    changed = replace(before, ref="2-x", payload={"a": "x" * MAX_VALUE_BYTES})
    view = update(before, changed)
    assert view["before"] == {"payload": {"a": 1}}
    assert view["after"] == {"payload": {"bytes": MAX_VALUE_BYTES + len('{"a":""}')}}


def test_stored_payloads_are_compared_by_fingerprint() -> None:
    document = {"name": "n", "schedule_type": "IMMEDIATE"}
    large = a_definition_row(document=document, payload=None, payload_blob="p/1")
    large = replace(large, payload_size=9_000, payload_fingerprint="aa")
    same = replace(large, ref="2-x", payload_blob="p/2")
    assert update(large, same)["after"] == {}
    other = replace(same, payload_fingerprint="bb", payload_size=9_001)
    assert update(large, other)["after"] == {"payload": {"bytes": 9_001}}
    assert update(large, other)["before"] == {"payload": {"bytes": 9_000}}


def test_created_job_entry_shows_the_sent_fields() -> None:
    body = a_definition_row(document={"name": "n", "schedule_type": "IMMEDIATE"}, payload=[1])
    entry = AuditEntry("acme", a_note(audit.JOB_CREATE), Subject(JOB, 1, body.ref))
    view = audit_entry_json(AuditEntryView(entry, None, body))
    assert view["before"] is None
    assert view["after"] == {"name": "n", "schedule_type": "IMMEDIATE", "payload": [1]}
    assert view["job_id"] == JOB
    assert (view["caller"], view["token_id"]) == (ADA.caller, ADA.token_id)
    assert (view["address"], view["request_id"]) == (ADA.address, ADA.request_id)
    assert (view["run_id"], view["subject_token_id"], view["count"]) == (None, None, 1)


def test_actor_fields_are_bounded_and_can_be_encoded() -> None:
    caller = Caller("acme", "x" * 1_000 + "\ud800", token_id="\ud800", address="y" * 999)
    bounded = actor_of(Request("POST", "/jobs", "", {}, b"", caller, "z" * 999))
    assert {len(text) for text in (bounded.caller, bounded.address, bounded.request_id)} == {
        MAX_ACTOR_CHARACTERS
    }
    assert bounded.token_id == "?"


def update(before: Any, changed: Any) -> dict[str, Any]:
    note = a_note(audit.JOB_UPDATE, replaced_ref=before.ref, before={}, after={})
    entry = AuditEntry("acme", note, Subject(JOB, 2, changed.ref))
    return audit_entry_json(AuditEntryView(entry, before, changed))
