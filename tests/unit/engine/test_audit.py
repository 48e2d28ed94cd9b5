"""What is noted of a change, whether a swap is that change, and how a line of it is shown."""

from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Reason, RunStatus, Trigger, WaitingRun
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
from punctual.web.http.request import MAX_ACTOR_CHARACTERS as LONGEST
from punctual.web.http.request import Caller, Request, actor_of
from punctual.web.views.audit import MAX_VALUE_BYTES, audit_entry_json
from tests.support.builders import JOB, NOON, RUN, a_body, a_head, a_run, after

ADA = Actor("ada", "0193e2b4-7b12-7000-8000-000000000000", "203.0.113.9", "request-1")
LINED = a_head(wait_queue=(WaitingRun(RUN, 1, NOON, NOON, NOON),))
ALIVE = a_head(runs=(a_run(),))
WISHED = a_head(runs=(a_run(status=RunStatus.RUNNING, token=1, cancel_reason=Reason.CANCELLED),))
RUNNING = a_head(runs=(a_run(status=RunStatus.RUNNING, token=1),))
BLANK = replace(a_head(), is_blank=True)
PAUSED = a_head(version=2, edition=2, status=JobStatus.PAUSED)


def a_note(action: str, **fields: Any) -> Note:
    return Note(ADA, action, NOON, **fields)


@pytest.mark.parametrize(
    ("action", "old", "new"),
    [
        (audit.JOB_CREATE, None, a_head()),
        (audit.JOB_CREATE, BLANK, a_head()),
        (audit.JOB_UPDATE, a_head(), a_head(version=2, edition=2)),
        (audit.JOB_PAUSE, a_head(), PAUSED),
        (audit.JOB_RESUME, PAUSED, a_head(version=3, edition=3)),
        (audit.JOB_CANCEL, a_head(), a_head(edition=2, status=JobStatus.CANCELLED)),
        (audit.RUN_ORDER, a_head(), ALIVE),
        (audit.RUN_ORDER, a_head(), LINED),
        (audit.RUN_RETRY, a_head(), ALIVE),
        (audit.JOB_BACKFILL, a_head(), a_head(runs=(a_run(trigger=Trigger.BACKFILL),))),
        (audit.RUN_CANCEL, ALIVE, a_head(unrecorded=(a_run(status=RunStatus.CANCELLED),))),
        (audit.RUN_CANCEL, RUNNING, WISHED),
        (audit.RUN_CANCEL, LINED, a_head()),
    ],
)
def test_a_swap_that_does_what_was_asked_is_noted(
    action: str, old: JobState | None, new: JobState
) -> None:
    found = audit.note_for_swap(a_note(action, run_id=RUN), old, new)
    assert found is not None
    assert (found.actor, found.action, found.at) == (ADA, action, NOON)


@pytest.mark.parametrize(
    ("action", "old", "new"),
    [
        (audit.JOB_CREATE, None, BLANK),
        (audit.JOB_UPDATE, None, BLANK),
        (audit.JOB_PAUSE, a_head(), a_head(version=2, unrecorded=())),
        (audit.JOB_CANCEL, a_head(unrecorded=(a_run(),)), a_head(version=2)),
        (audit.RUN_ORDER, ALIVE, a_head(version=2, runs=(a_run(send_count=1),))),
        (audit.RUN_ORDER, LINED, ALIVE),
        (audit.JOB_BACKFILL, a_head(), ALIVE),
        (audit.RUN_CANCEL, WISHED, WISHED),
        (audit.RUN_CANCEL, WISHED, a_head(unrecorded=(a_run(status=RunStatus.CANCELLED),))),
        (audit.RUN_CANCEL, a_head(), a_head(version=2)),
    ],
)
def test_a_swap_that_only_sees_to_what_an_earlier_one_left_is_not(
    action: str, old: JobState | None, new: JobState
) -> None:
    assert audit.note_for_swap(a_note(action, run_id=RUN), old, new) is None


def test_a_change_of_state_is_told_with_both_states() -> None:
    note = audit.note_for_swap(a_note(audit.JOB_RESUME, after={"missed": "SKIP"}), PAUSED, a_head())
    assert note is not None
    assert note.before == {"status": "PAUSED"}
    assert note.after == {"missed": "SKIP", "status": "SCHEDULED"}


def test_a_backfill_counts_the_runs_that_it_made() -> None:
    """Not those that its schedule made at the same time."""
    asked = [a_run(f"r{n}", trigger=Trigger.BACKFILL) for n in range(7)]
    made = a_head(runs=(*asked, a_run("due")))
    note = audit.note_for_swap(a_note(audit.JOB_BACKFILL), a_head(runs=(asked[0],)), made)
    assert note is not None
    assert note.count == 6


def test_the_id_of_an_entry_says_when_and_is_its_own() -> None:
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


def test_what_stands_twice_is_listed_once_and_the_newest_first() -> None:
    old, new = a_note(audit.JOB_CREATE), replace(a_note(audit.JOB_PAUSE), at=after(1))
    noted = [NoteWithSubjects(old, [Subject(JOB, 1)]), NoteWithSubjects(new, [Subject(JOB, 2)])]
    found = audit.newest_first("acme", [*noted, *noted], AuditFilters())
    assert [entry.note.action for entry in found] == [audit.JOB_PAUSE, audit.JOB_CREATE]


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
def test_filters_admit_what_they_name_from_inclusive_to_exclusive(
    filters: AuditFilters, admitted: bool
) -> None:
    noted = [NoteWithSubjects(a_note(audit.JOB_PAUSE), [Subject(JOB, 2)])]
    assert bool(audit.newest_first("acme", noted, filters)) is admitted


def test_a_changed_definition_shows_the_fields_that_differ_with_their_defaults() -> None:
    before = a_body(document={"name": "n", "schedule_type": "IMMEDIATE"}, tags={})
    document = {**before.document, "priority": "HIGH", "retry": {"multiplier": 3}}
    shown = update(before, replace(before, ref="2-x", document=document))
    retry = {"backoff_seconds": 5, "max_backoff_seconds": 300, "multiplier": 2, "jitter": True}
    assert shown["before"] == {"priority": "NORMAL", "retry": retry}
    assert shown["after"] == {"priority": "HIGH", "retry": {**retry, "multiplier": 3}}


def test_what_is_long_is_told_by_its_size() -> None:
    before = a_body(document={"name": "n", "schedule_type": "IMMEDIATE"}, payload={"a": 1})
    after_it = replace(before, ref="2-x", payload={"a": "x" * MAX_VALUE_BYTES})
    shown = update(before, after_it)
    assert shown["before"] == {"payload": {"a": 1}}
    assert shown["after"] == {"payload": {"bytes": MAX_VALUE_BYTES + len('{"a":""}')}}


def test_payloads_beside_their_definition_differ_by_their_prints() -> None:
    document = {"name": "n", "schedule_type": "IMMEDIATE"}
    large = a_body(document=document, payload=None, payload_blob="p/1")
    large = replace(large, payload_size=9_000, payload_fingerprint="aa")
    same = replace(large, ref="2-x", payload_blob="p/2")
    assert update(large, same)["after"] == {}
    other = replace(same, payload_fingerprint="bb", payload_size=9_001)
    assert update(large, other)["after"] == {"payload": {"bytes": 9_001}}
    assert update(large, other)["before"] == {"payload": {"bytes": 9_000}}


def test_a_created_job_shows_what_was_sent() -> None:
    body = a_body(document={"name": "n", "schedule_type": "IMMEDIATE"}, payload=[1])
    entry = AuditEntry("acme", a_note(audit.JOB_CREATE), Subject(JOB, 1, body.ref))
    shown = audit_entry_json(AuditEntryView(entry, None, body))
    assert shown["before"] is None
    assert shown["after"] == {"name": "n", "schedule_type": "IMMEDIATE", "payload": [1]}
    assert shown["job_id"] == JOB
    assert (shown["caller"], shown["token_id"]) == (ADA.caller, ADA.token_id)
    assert (shown["address"], shown["request_id"]) == (ADA.address, ADA.request_id)
    assert (shown["run_id"], shown["subject_token_id"], shown["count"]) == (None, None, 1)


def test_what_a_request_brings_is_bounded_and_can_be_written() -> None:
    caller = Caller("acme", "x" * 1_000 + "\ud800", token_id="\ud800", address="y" * 999)
    found = actor_of(Request("POST", "/jobs", "", {}, b"", caller, "z" * 999))
    assert {len(text) for text in (found.caller, found.address, found.request_id)} == {LONGEST}
    assert found.token_id == "?"


def update(before: Any, changed: Any) -> dict[str, Any]:
    note = a_note(audit.JOB_UPDATE, replaced_ref=before.ref, before={}, after={})
    entry = AuditEntry("acme", note, Subject(JOB, 2, changed.ref))
    return audit_entry_json(AuditEntryView(entry, before, changed))
