"""GET /overview over a whole node: late runs, failures, pauses, and the next start."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.timestamps import format_time
from tests.integration.web.test_failures import end_run
from tests.integration.web.test_http_engine import CRON, NOON, NodeClient, submitted


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    yield client
    client.close()


def overview(client: NodeClient) -> dict[str, Any]:
    answer = client.get("/v1/overview")
    assert answer.status == 200, answer.body
    value: dict[str, Any] = answer.json
    return value


def codes(value: dict[str, Any]) -> list[str]:
    return [fact["code"] for fact in value["facts"]]


def test_new_node_has_no_jobs(client: NodeClient) -> None:
    assert overview(client) == {
        "verdict": "OK",
        "sentence": "No jobs yet.",
        "since": None,
        "facts": [{"code": "JOBS", "text": "No jobs yet.", "count": 0}],
    }


def test_sentence_names_the_jobs_and_the_next_start(client: NodeClient) -> None:
    submitted(client, CRON)
    paused = submitted(client, {**CRON, "name": "paused"})["job_id"]
    assert client.post(f"/v1/jobs/{paused}/pause", {}).status == 200
    client.clock.set(NOON + timedelta(minutes=9, seconds=20))
    client.node.step()
    assert overview(client)["sentence"] == "2 jobs, all on time. Next start in 40 s."


def test_failure_is_bad_until_it_is_known_or_closed(client: NodeClient) -> None:
    job_id = submitted(client, CRON)["job_id"]
    end_run(client, job_id, 1)
    value = overview(client)
    assert (value["verdict"], value["since"]) == ("BAD", format_time(NOON + timedelta(seconds=1)))
    assert codes(value) == ["JOBS", "FAILURES", "NEXT_START"]
    (failure,) = client.get("/v1/failures").json["failures"]
    client.post(f"/v1/failures/{failure['failure_id']}/acknowledge", {"note": "known"})
    known = overview(client)
    assert (known["verdict"], codes(known)[1]) == ("WARN", "KNOWN_FAILURES")
    end_run(client, job_id, 2, error="")
    assert overview(client)["verdict"] == "OK"


def test_acknowledged_job_is_bad_again_after_another_kind_of_error(client: NodeClient) -> None:
    job_id = submitted(client, CRON)["job_id"]
    end_run(client, job_id, 1, error="disk full")
    (failure,) = client.get("/v1/failures").json["failures"]
    client.post(f"/v1/failures/{failure['failure_id']}/acknowledge", {"note": "ordered a disk"})
    end_run(client, job_id, 2, error="disk full")
    assert overview(client)["verdict"] == "WARN"
    end_run(client, job_id, 3, error="no route to host")
    value = overview(client)
    assert (value["verdict"], codes(value)[1:3]) == ("BAD", ["FAILURES", "KNOWN_FAILURES"])
    other, same = client.get("/v1/failures").json["failures"]
    assert (other["error"], other["acknowledged"]) == ("no route to host", None)
    assert (same["count"], same["acknowledged"]["note"]) == (2, "ordered a disk")


def test_late_run_is_bad(client: NodeClient) -> None:
    """The node runs no http tasks here, so the run finds no executor."""
    task = {"type": "http", "url": "https://example.com/"}
    submitted(client, {"name": "now", "schedule_type": "IMMEDIATE", "task": task})
    client.node.drain()
    client.clock.set(NOON + timedelta(seconds=30))
    value = overview(client)
    assert "LATE_RUNS" in codes(value)
    assert "Runs of 1 job are due and have not started, the oldest for " in value["sentence"]


def test_silent_planner_is_blind(client: NodeClient) -> None:
    submitted(client, CRON)
    client.clock.set(NOON + timedelta(minutes=2))
    value = overview(client)
    assert value["verdict"] == "BLIND"
    assert value["sentence"].startswith("No word from the planner for ")


def test_pause_past_its_time_is_a_warning(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, CRON)['job_id']}"
    until = format_time(client.clock.now + timedelta(seconds=5))
    assert client.post(f"{path}/pause", {"until": until}).status == 200
    client.clock.set(NOON + timedelta(seconds=30))
    value = overview(client)
    assert (value["verdict"], value["since"]) == ("WARN", until)
    assert "1 job is paused past the time to resume." in value["sentence"]


def test_query_parameters_are_refused(client: NodeClient) -> None:
    assert client.get("/v1/overview?x=1").status == 422
