"""docs/events.md names exactly the fields and reasons that are sent."""

import re
from pathlib import Path

from punctual.domain.job_state import JobStatus
from punctual.lambdas.status.changes import compare_states
from punctual.lambdas.status.events import ALL_RUN_EVENTS, JOB_CHANGED, RUN_CHANGED, build_events
from tests.support.builders import NOON, a_job_state, a_run

TEXT = (Path(__file__).parents[3] / "docs/events.md").read_text()


def documented(heading: str, header: str) -> set[str]:
    """Return the names in the first column of the table with this header."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    table = section.split(f"| {header} |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"[A-Za-z_]+", row)}


def sent_fields(kind: str) -> set[str]:
    state = a_job_state(runs=(a_run(),))
    events = build_events(state, 1, NOON, compare_states(None, state), ALL_RUN_EVENTS)
    return {name for event in events if event["detail-type"] == kind for name in event["detail"]}


def test_events_page_has_every_field_of_a_job() -> None:
    assert documented(JOB_CHANGED, "field") == sent_fields(JOB_CHANGED)


def test_events_page_has_every_field_of_a_run() -> None:
    assert documented(RUN_CHANGED, "field") == sent_fields(RUN_CHANGED)


def test_events_page_has_every_reason_of_a_job_event() -> None:
    states = [
        None,
        *(a_job_state(status=state, edition=edition) for state in JobStatus for edition in (1, 2)),
    ]
    changes = [compare_states(old, new).job for old in states for new in states]
    assert {change.reason for change in changes if change is not None} == documented(
        JOB_CHANGED, "reason"
    )
