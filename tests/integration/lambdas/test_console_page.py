"""docs/how-to/use-from-the-aws-console.md: its events work, and the names it gives exist."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.stacks.observability.queries import SAVED_QUERIES
from punctual.aws.dynamodb.keys import AUDIT_NOTE_ATTR
from punctual.web.contract import READ_FUNCTION, WRITE_FUNCTION
from tests.support.builders import NOON
from tests.support.deployed.drivers.api import Answer, Api, an_api
from tests.support.infra.synthesis import assembly, functions

PAGE = (Path(__file__).parents[3] / "docs/how-to/use-from-the-aws-console.md").read_text()
EVENTS = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HOURLY = {"name": "hourly", "schedule_type": "CRON", "cron_expression": "0 * * * *"}


@pytest.fixture
def api() -> Iterator[Api]:
    with an_api(now=NOON - timedelta(minutes=1)) as api:
        yield api


def sent(api: Api, job_id: str, ending: str, function: str) -> Answer:
    """Send the event of the page with a path that ends in `ending`, as the page shows it."""
    (text,) = [text for text in EVENTS if json.loads(text)["rawPath"].endswith(ending)]
    return api.ask(json.loads(text.replace("JOB_ID", job_id)), function)


@pytest.fixture
def job_id(api: Api) -> str:
    job_id: str = api("POST", "/jobs", HOURLY).json["job_id"]
    return job_id


def status(api: Api, job_id: str) -> Any:
    return api("GET", f"/jobs/{job_id}").json["status"]


def test_event_stops_a_job(api: Api, job_id: str) -> None:
    assert sent(api, job_id, "/pause", WRITE_FUNCTION).status == 200
    assert status(api, job_id) == "PAUSED"


def test_event_resumes_a_job(api: Api, job_id: str) -> None:
    sent(api, job_id, "/pause", WRITE_FUNCTION)
    (text,) = [text for text in EVENTS if "/pause" in text]
    event = json.loads(text.replace("JOB_ID", job_id).replace("/pause", "/resume"))
    assert api.ask(event, WRITE_FUNCTION).status == 200
    assert status(api, job_id) == "SCHEDULED"


def test_event_cancels_a_job(api: Api, job_id: str) -> None:
    assert sent(api, job_id, "/JOB_ID", WRITE_FUNCTION).status == 200
    assert status(api, job_id) == "CANCELLED"


def test_event_runs_a_job_once(api: Api, job_id: str) -> None:
    answer = sent(api, job_id, "/runNow", WRITE_FUNCTION)
    assert answer.status == 202
    (run,) = api("GET", f"/jobs/{job_id}/runs").json["runs"]
    assert run["run_id"] == answer.json["run_id"]


def test_change_by_an_event_carries_its_caller_for_the_audit(api: Api, job_id: str) -> None:
    sent(api, job_id, "/pause", WRITE_FUNCTION)
    (row,) = [
        row for row in api.store.rows(api.store.settings.jobs_table) if AUDIT_NOTE_ATTR in row
    ]
    assert json.loads(row[AUDIT_NOTE_ATTR]["S"])[0][0] == "console"


def test_event_explains_a_time(api: Api, job_id: str) -> None:
    answer = sent(api, job_id, "/explain", READ_FUNCTION)
    assert (answer.status, answer.json["outcome"]) == (200, "PLANNED")


def test_events_of_the_page_are_all_tried() -> None:
    endings = [json.loads(text)["rawPath"].rpartition("/")[2] for text in EVENTS]
    assert endings == ["pause", "JOB_ID", "runNow", "explain"]


def test_queries_and_outputs_of_the_page_exist() -> None:
    cloud_assembly = assembly("dev")
    assert {"failed runs", "failed runs by error", "run by id", "latest pick-ups"} <= {
        query.name for query in SAVED_QUERIES
    }
    listed = re.findall(r"^\| `Punctual-dev-(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(listed) == 3
    assert all(output in cloud_assembly.templates[stack]["Outputs"] for stack, output in listed)
    named = set(re.findall(r"`punctual-dev-([\w-]+)`", PAGE))
    assert named == {"job-service", "job-search"}
    assert named <= functions(cloud_assembly).keys()
