"""Limits of a deployed stage, on moto: its rows, its API, its executors, and the tool."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from botocore.exceptions import EndpointConnectionError

from infra.operations import limits as tool
from punctual.aws.dynamodb.control.limits import (
    LIMITS_ATTR,
    DynamoLimits,
    DynamoQuotaRows,
    limits_row,
)
from punctual.aws.ports import build_dynamo_client
from punctual.aws.retries import ConditionFailed
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.run import RunStatus
from punctual.domain.tenants.limits import InvalidLimits
from punctual.engine.ports.tenants.quota_rows import QuotaRow
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, ManualClock
from tests.support.deployed.drivers.api import Api, an_api
from tests.support.deployed.drivers.executors import Executors, executors

# One-time jobs may share a name.
ONCE = {"name": "once", "schedule_type": "FUTURE", "schedule_time": "2030-01-01T00:00:00Z"}


@contextmanager
def limited(text: str | None) -> Iterator[tuple[Api, ManualClock]]:
    with an_api("dev" if text is None else "rehearsal") as api:
        api.store.settings = replace(api.store.settings, limits=text)
        clock = api.clock
        yield Api(api.direct, lambda: (clock() - NOON).total_seconds()), clock


@contextmanager
def executing(text: str) -> Iterator[Executors]:
    with executors("rehearsal") as world:
        world.aws.settings = replace(world.aws.settings, limits=text)
        world.runtime = world.new_runtime()
        yield world


def write(store: Moto, tenant: str, **limits: int | None) -> None:
    put(store, limits_row(tenant, limits))


def put(store: Moto, row: dict[str, Any]) -> None:
    requests = [{"PutRequest": {"Item": row}}]
    store.clients.dynamodb.batch_write_item(RequestItems={store.settings.control_table: requests})


@contextmanager
def control_away(store: Moto) -> Iterator[None]:
    """Fail each call to the control table."""
    events = store.clients.dynamodb.meta.events

    def refuse(params: dict[str, Any], **_: Any) -> None:
        if store.settings.control_table in json.dumps(params, default=str):
            raise EndpointConnectionError(endpoint_url="dynamodb")

    events.register("provide-client-params.dynamodb", refuse)
    try:
        yield
    finally:
        events.unregister("provide-client-params.dynamodb", refuse)


def test_quota_row_is_written_only_at_the_version_that_was_read() -> None:
    with moto(ManualClock(NOON)) as store:
        rows = DynamoQuotaRows(tool_dynamo(store), store.settings.control_table, lambda: NOON)
        assert rows.read("acme", "calls") is None
        assert rows.swap("acme", "calls", 0, "[1]") is None
        assert rows.swap("acme", "calls", 0, "[2]") == QuotaRow("[1]", 1)
        assert rows.swap("acme", "calls", 1, "[3]") is None
        assert rows.read("acme", "calls") == QuotaRow("[3]", 2)
        assert rows.read("other", "calls") is None
        assert rows.swap("other", "calls", 7, "[1]") == QuotaRow("", 0)  # it expired meanwhile


def test_quota_row_counts_as_written_if_only_the_answer_was_lost() -> None:
    with moto(ManualClock(NOON)) as store:
        dynamo = tool_dynamo(store)
        put_if = dynamo.put_if

        def put_twice(*arguments: Any) -> Any:
            """Return the answer of a second try, after the answer of the first was lost."""
            put_if(*arguments)
            refused = put_if(*arguments)
            return None if refused is None else ConditionFailed(refused.item, ambiguous=True)

        rows = DynamoQuotaRows(dynamo, store.settings.control_table, lambda: NOON)
        with patch.object(dynamo, "put_if", put_twice):
            assert rows.swap("acme", "calls", 0, "[1]") is None
            assert rows.swap("acme", "calls", 0, "[2]") == QuotaRow("[1]", 1)
        assert rows.read("acme", "calls") == QuotaRow("[1]", 1)


def tool_dynamo(store: Moto) -> Any:
    return build_dynamo_client(store.clients, ThreadPool(1), store.patience)


def test_operator_limits_are_read_and_an_invalid_row_is_an_error() -> None:
    with moto(ManualClock(NOON)) as store:
        overrides = DynamoLimits(tool_dynamo(store), store.settings.control_table)
        assert overrides("acme") is None
        write(store, "acme", jobs=5, burst=None)
        assert overrides("acme") == {"jobs": 5, "burst": None}
        for wrong in ("{", "[]"):
            put(store, {**limits_row("acme", {}), LIMITS_ATTR: {"S": wrong}})
            with pytest.raises(InvalidLimits):
                overrides("acme")


def test_calls_over_the_rate_are_refused_with_a_true_retry_after() -> None:
    with limited("calls_per_second=2 burst=3") as (api, clock):
        answers = [api("GET", "/jobs") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        refused = answers[-1]
        assert refused.json["code"] == "LIMIT_EXCEEDED"
        assert refused.headers["retry-after"] == "1"
        assert api("GET", "/health").status in (200, 503)
        assert api("GET", "/openapi.json").status == 200
        posted = [api("POST", "/jobs", ONCE).status for _ in range(6)]
        assert posted.count(202) <= 4  # both functions share the tokens
        clock.advance(timedelta(seconds=1))
        assert api("GET", "/jobs").status == 200
        other = {"lambda": {"tenant": "other", "caller": "ada", "role": "viewer"}}
        assert api("GET", "/jobs", authorizer=other).status == 200


def test_many_calls_share_a_write_and_limits_are_read_once_a_minute() -> None:
    with limited("calls_per_second=1000") as (api, clock):
        api("GET", "/whoami")
        spent = api.store.spend(lambda: [api("GET", "/whoami") for _ in range(100)])
        assert spent.get("PutItem", 0) <= 4
        assert spent.get("BatchGetItem", 0) <= 4
        clock.advance(timedelta(seconds=60))
        spent = api.store.spend(lambda: api("GET", "/whoami"))
        assert spent["BatchGetItem"] <= 2  # the limits, and the row where a lease has ended


@pytest.mark.parametrize("text", [None, ""], ids=["no limits", "no tenant limited"])
def test_tenant_without_limits_costs_nothing(text: str | None) -> None:
    with limited(text) as (api, _):
        first = api.store.spend(lambda: api("GET", "/whoami"))
        assert first.get("BatchGetItem", 0) == (0 if text is None else 1)
        assert api.store.spend(lambda: [api("GET", "/whoami") for _ in range(50)]) == {}
        taken = api.store.spend(lambda: api("POST", "/jobs", ONCE))
        again = api.store.spend(lambda: api("POST", "/jobs", ONCE))
        assert again["PutItem"] <= taken["PutItem"]


def test_tenant_limits_override_those_of_the_stage() -> None:
    with limited("jobs=1") as (api, clock):
        write(api.store, "default", jobs=None, payload_bytes=100)
        assert [api("POST", "/jobs", ONCE).status for _ in range(3)] == [202] * 3
        shown = api("GET", "/whoami").json["limits"]
        assert (shown["jobs"], shown["payload_bytes"], shown["burst"]) == (None, 100, None)
        long = api("POST", "/jobs", {**ONCE, "payload": "x" * 100})
        assert long.status == 422
        assert long.json["errors"][0]["field"] == "payload"
        clock.advance(timedelta(seconds=61))
        write(api.store, "default", payload_bytes=1_000)
        assert api("POST", "/jobs", {**ONCE, "payload": "x" * 100}).status in (202, 429)


def test_jobs_over_the_quota_are_refused_one_by_one() -> None:
    with limited("jobs=3") as (api, _):
        batch = api("POST", "/jobs/batch", {"jobs": [ONCE] * 5})
        assert [result["status"] for result in batch.json["results"]] == [202] * 3 + [429] * 2
        refused = api("POST", "/jobs", ONCE)
        assert (refused.status, refused.headers["retry-after"]) == (429, "60")
        assert "cancel some" in refused.json["detail"]


def test_orders_over_the_limit_of_a_minute_are_refused() -> None:
    with limited("runs_per_minute=2") as (api, _):
        job_id = api("POST", "/jobs", ONCE).json["job_id"]
        assert api("POST", f"/jobs/{job_id}/runNow").status == 202
        once = {"name": "now", "schedule_type": "IMMEDIATE"}
        assert api("POST", "/jobs", once).status == 202
        for refused in (api("POST", f"/jobs/{job_id}/runNow"), api("POST", "/jobs", once)):
            assert refused.status == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 71


def test_change_that_runs_a_job_at_once_is_an_order() -> None:
    with limited("runs_per_minute=1") as (api, _):
        first, second = (api("POST", "/jobs", ONCE).json["job_id"] for _ in range(2))
        once = {"schedule_type": "IMMEDIATE"}
        assert api("PATCH", f"/jobs/{first}", once).status == 200
        refused = api("PATCH", f"/jobs/{second}", once)
        assert (refused.status, refused.json["code"]) == (429, "LIMIT_EXCEEDED")
        assert api("GET", f"/jobs/{second}").json["schedule_type"] == "FUTURE"
        assert api("PATCH", f"/jobs/{first}", {"name": "renamed"}).status == 200


def test_calls_without_the_control_table_go_on_within_bounds_and_are_logged() -> None:
    with limited("calls_per_second=5 jobs=100 runs_per_minute=100") as (api, clock):
        assert api("GET", "/whoami").status == 200
        clock.advance(timedelta(seconds=61))  # what was known has to be read again, too
        with control_away(api.store):
            answers = [api("GET", "/whoami") for _ in range(8)]
            statuses = [answer.status for answer in answers]
            assert statuses == sorted(statuses)
            assert 1 <= statuses.count(200) <= 5  # the lease, and then a little
            assert answers[-1].status == 429
            assert answers[-1].headers["retry-after"] == "1"
            clock.advance(timedelta(seconds=1))
            assert api("POST", "/jobs", ONCE).status in (202, 503)
        wrong = {event for telemetry in api.telemetry.values() for event in telemetry.problem_names}
        assert {"limits_unread", "limits_unavailable"} <= wrong
        clock.advance(timedelta(seconds=10))
        assert api("POST", "/jobs", ONCE).status == 202


def receives(records: list[Any], number: int) -> list[Any]:
    for record in records:
        record["attributes"]["ApproximateReceiveCount"] = str(number)
    return records


def test_run_over_the_limit_goes_back_and_starts_later() -> None:
    with executing("runs_per_minute=2") as world:
        jobs = [world.submit(priority=priority) for priority in ("LOW", "NORMAL", "HIGH")]
        records = world.records()
        back = world.invoke(records)
        assert len(back) == 1
        assert [world.status(job) for job in jobs] == [
            RunStatus.QUEUED,
            RunStatus.SUCCESS,
            RunStatus.SUCCESS,
        ]
        ((_, hidden),) = world.hidden
        assert 60 <= hidden <= 80
        assert world.telemetry.count(Metric.LIMITED) == 1
        world.clock.advance(timedelta(seconds=hidden + 1))
        again = [record for record in records if record["messageId"] in back]
        assert world.invoke(receives(again, 2)) == []
        assert world.status(jobs[0]) is RunStatus.SUCCESS


def test_run_of_a_batch_starts_when_another_has_ended() -> None:
    with executing("concurrent_runs=2") as world:
        jobs = [world.submit(payload={"lasts": 0.3}) for _ in range(6)]
        assert world.invoke(world.records()) == []
        assert {world.status(job) for job in jobs} == {RunStatus.SUCCESS}
        begun, ended = sorted(world.task_runner.begun_at), sorted(world.task_runner.ended_at)
        for number, at in enumerate(begun[2:], start=2):
            assert at >= ended[number - 2]


def test_run_held_back_many_times_is_not_dead_lettered() -> None:
    with executing("runs_per_minute=1") as world:
        world.submit()
        waiting = world.submit(priority="LOW")
        records = world.records()
        (back,) = world.invoke(records)
        (mine,) = [record for record in records if record["messageId"] == back]
        world.clock.advance(timedelta(seconds=10))
        assert world.invoke(receives([mine], 40)) == []  # it is gone, and a timer stands
        assert world.status(waiting) is RunStatus.QUEUED
        world.clock.advance(timedelta(minutes=6))
        world.evaluate_due_timers()
        sent = world.records()
        assert [json.loads(entry["body"])["j"] for entry in sent] == [waiting.job_id]
        assert world.invoke(sent) == []
        assert world.status(waiting) is RunStatus.SUCCESS


def test_runs_start_while_the_control_table_is_away() -> None:
    with executing("runs_per_minute=1 concurrent_runs=1") as world:
        jobs = [world.submit() for _ in range(2)]
        records = world.records()
        with control_away(world.aws):
            world.invoke(records)
        assert {world.status(job) for job in jobs} == {RunStatus.SUCCESS}
        assert "limits_unavailable" in {event for event, _ in world.telemetry.problems}


def session_of(store: Moto) -> Any:
    """Return a session for the tool, with the settings of this store."""
    variables = store.settings.to_env()
    function = SimpleNamespace(
        get_function_configuration=lambda **_: {"Environment": {"Variables": variables}},
        exceptions=SimpleNamespace(ResourceNotFoundException=KeyError),
    )
    arn = "arn:aws:sts::123456789012:assumed-role/Operator/grace"
    caller = {"Account": "123456789012", "Arn": arn}
    identity = SimpleNamespace(get_caller_identity=lambda: caller)
    clients = {"lambda": function, "dynamodb": store.clients.dynamodb, "sts": identity}
    return SimpleNamespace(region_name="eu-central-1", client=clients.__getitem__)


def test_operator_tool_shows_sets_and_removes_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with limited("jobs=7") as (api, _):
        session = session_of(api.store)

        def run(*arguments: str) -> tuple[int, str]:
            code = tool.main(["dev", *arguments], session)
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        assert run("default", "runs_per_minute=30", "jobs=null")[0] == 0
        code, output = run("default")
        assert code == 0
        assert "runs_per_minute   30" in output
        assert "jobs              no limit" in output
        assert api("GET", "/whoami").json["limits"]["runs_per_minute"] == 30
        assert "jobs              7" in run("default", "default")[1]
        for wrong in ("jobs", "jobs=0", "job=1"):
            code, output = run("default", wrong)
            assert (code, output.startswith("limits: ")) == (1, True)
        assert run()[0] == 1


def test_operator_tool_writes_an_audit_line() -> None:
    with limited("jobs=7 burst=9") as (api, _):
        session = session_of(api.store)
        for arguments in (["jobs=5", "burst=9"], ["jobs=5"], ["default"], ["default"]):
            assert tool.main(["dev", "default", *arguments], session) == 0
        given, taken = api("GET", "/audit?action=limits.change").json["entries"][::-1]
        assert (given["before"], given["after"]) == ({"jobs": 7}, {"jobs": 5})
        assert (taken["before"], taken["after"]) == ({"jobs": 5}, {"jobs": 7})
        assert {entry["caller"] for entry in (given, taken)} == {"grace"}
        assert given["request_id"] != taken["request_id"]
        assert tool.main(["dev", "other", "jobs=1"], session) == 0
        assert len(api("GET", "/audit?action=limits.change").json["entries"]) == 2


def test_operator_tool_does_not_overwrite_a_concurrent_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with limited("jobs=7") as (api, _):
        read = tool.read_own_limits

        def slow(*asked: Any) -> Any:
            answer = read(*asked)
            write(api.store, "default", jobs=3)
            return answer

        monkeypatch.setattr(tool, "read_own_limits", slow)
        assert tool.main(["dev", "default", "jobs=5"], session_of(api.store)) == 1
        assert "another change of these limits came first" in capsys.readouterr().err
        assert read(session_of(api.store), api.store.settings, "default") == {"jobs": 3}
        assert api("GET", "/audit?action=limits.change").json["entries"] == []


def test_operator_tool_names_the_setting_of_a_stage_without_limits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with limited(None) as (api, _):
        assert tool.main(["dev", "acme"], session_of(api.store)) == 1
        assert "set `limits` in cdk.json" in capsys.readouterr().err


@pytest.mark.parametrize("limits", ["concurrent_runs=1", "lane_percent=25"])
def test_slow_run_limits_tenant_to_its_part_of_executors(limits: str) -> None:
    """A quarter of the four executors of the queue is one."""
    with executing(limits) as world:
        slow, other = world.submit(payload={"lasts": 25}), world.submit()
        records = world.records()
        second: list[list[str]] = []
        elsewhere = world.new_runtime()

        def invoke_elsewhere() -> None:
            second.append(world.invoke(records[1:], runtime=elsewhere))

        world.task_runner.at(NOON + timedelta(seconds=20), invoke_elsewhere)
        assert world.invoke(records[:1]) == []
        assert len(second[0]) == 1  # places were renewed: 20 s are over
        assert world.status(slow) is RunStatus.SUCCESS
        assert world.status(other) is RunStatus.QUEUED  # it waits, and does not fail
        assert world.invoke(receives(records[1:], 2), runtime=elsewhere) == []
        assert world.status(other) is RunStatus.SUCCESS
