"""Limits of a deployed stage, on moto: its rows, its API, its executors, and the tool."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from infra.operations import limits as tool
from punctual.aws.dynamodb.control import limit_keys
from punctual.aws.dynamodb.control.limits import DynamoLimits, DynamoShares, limits_row
from punctual.domain.run import RunStatus
from punctual.domain.tenants.limits import WrongLimits
from punctual.engine.quotas.leased_row import Row
from punctual.lambdas.telemetry import Metric
from tests.builders import NOON
from tests.integration.executor_world import ExecutorWorld, executor_world
from tests.integration.moto_adapter import Moto, moto
from tests.integration.serverless_api import Deployed, Hand

DAILY = {"name": "daily", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}


@contextmanager
def limited(text: str | None) -> Iterator[tuple[Deployed, Hand]]:
    clock = Hand()
    with moto(clock) as store:
        store.settings = replace(store.settings, limits=text)
        yield Deployed(store, clock, lambda: (clock() - NOON).total_seconds()), clock


@contextmanager
def executing(text: str) -> Iterator[ExecutorWorld]:
    with executor_world() as world:
        world.aws.settings = replace(world.aws.settings, limits=text)
        world.runtime = world.new_runtime()
        yield world


def write(store: Moto, tenant: str, **said: int | None) -> None:
    put(store, limits_row(tenant, said))


def put(store: Moto, row: dict[str, Any]) -> None:
    asked = [{"PutRequest": {"Item": row}}]
    store.clients.dynamodb.batch_write_item(RequestItems={store.settings.control_table: asked})


@contextmanager
def control_away(store: Moto) -> Iterator[None]:
    """Nothing that touches the control table is answered."""
    events = store.clients.dynamodb.meta.events

    def refuse(params: dict[str, Any], **_: Any) -> None:
        if store.settings.control_table in json.dumps(params, default=str):
            raise EndpointConnectionError(endpoint_url="dynamodb")

    events.register("provide-client-params.dynamodb", refuse)
    try:
        yield
    finally:
        events.unregister("provide-client-params.dynamodb", refuse)


def test_a_share_is_written_by_who_saw_it_last() -> None:
    with moto(Hand()) as store:
        shares = DynamoShares(tool_dynamo(store), store.settings.control_table, lambda: NOON)
        assert shares.read("acme", "calls") is None
        assert shares.swap("acme", "calls", 0, "[1]") is None
        assert shares.swap("acme", "calls", 0, "[2]") == Row("[1]", 1)
        assert shares.swap("acme", "calls", 1, "[3]") is None
        assert shares.read("acme", "calls") == Row("[3]", 2)
        assert shares.read("other", "calls") is None
        assert shares.swap("other", "calls", 7, "[1]") == Row("", 0)  # it expired meanwhile


def tool_dynamo(store: Moto) -> Any:
    return Deployed(store, lambda: NOON).runtimes["job_search"].dynamo


def test_what_an_operator_wrote_is_read_and_nonsense_is_named() -> None:
    with moto(Hand()) as store:
        overrides = DynamoLimits(tool_dynamo(store), store.settings.control_table)
        assert overrides("acme") is None
        write(store, "acme", jobs=5, burst=None)
        assert overrides("acme") == {"jobs": 5, "burst": None}
        for wrong in ("{", "[]"):
            put(store, {**limits_row("acme", {}), limit_keys.LIMITS: {"S": wrong}})
            with pytest.raises(WrongLimits):
                overrides("acme")


def test_calls_beyond_the_rate_are_refused_with_a_time_that_is_true() -> None:
    with limited("calls_per_second=2 burst=3") as (api, clock):
        answers = [api("GET", "/jobs") for _ in range(4)]
        assert [one.status for one in answers] == [200, 200, 200, 429]
        refused = answers[-1]
        assert refused.json["code"] == "LIMIT_EXCEEDED"
        assert refused.headers["retry-after"] == "1"
        assert api("GET", "/health").status in (200, 503)
        assert api("GET", "/openapi.json").status == 200
        assert api("POST", "/jobs", DAILY).status == 429  # both functions share the tokens
        clock.move(1)
        assert api("GET", "/jobs").status == 200
        other = {"lambda": {"tenant": "other", "caller": "ada", "role": "viewer"}}
        assert api("GET", "/jobs", authorizer=other).status == 200


def test_many_calls_share_a_write_and_limits_are_read_once_a_minute() -> None:
    with limited("calls_per_second=1000") as (api, clock):
        api("GET", "/whoami")
        spent = api.store.spend(lambda: [api("GET", "/whoami") for _ in range(100)])
        assert spent.get("PutItem", 0) <= 4
        assert spent.get("BatchGetItem", 0) == 0
        clock.move(60)
        spent = api.store.spend(lambda: api("GET", "/whoami"))
        assert spent["BatchGetItem"] == 1


@pytest.mark.parametrize("text", [None, ""], ids=["no limits", "nobody limited"])
def test_who_is_not_limited_pays_nothing(text: str | None) -> None:
    with limited(text) as (api, _):
        first = api.store.spend(lambda: api("GET", "/whoami"))
        assert first.get("BatchGetItem", 0) == (0 if text is None else 1)
        assert api.store.spend(lambda: [api("GET", "/whoami") for _ in range(50)]) == {}
        taken = api.store.spend(lambda: api("POST", "/jobs", DAILY))
        again = api.store.spend(lambda: api("POST", "/jobs", DAILY))
        assert again["PutItem"] <= taken["PutItem"]


def test_one_tenants_own_limits_stand_before_the_stages() -> None:
    with limited("jobs=1") as (api, clock):
        write(api.store, "default", jobs=None, payload_bytes=100)
        assert [api("POST", "/jobs", DAILY).status for _ in range(3)] == [202] * 3
        shown = api("GET", "/whoami").json["limits"]
        assert (shown["jobs"], shown["payload_bytes"], shown["burst"]) == (None, 100, None)
        long = api("POST", "/jobs", {**DAILY, "payload": "x" * 100})
        assert long.status == 422
        assert long.json["errors"][0]["field"] == "payload"
        clock.move(61)
        write(api.store, "default", payload_bytes=1_000)
        assert api("POST", "/jobs", {**DAILY, "payload": "x" * 100}).status in (202, 429)


def test_jobs_beyond_the_quota_are_refused_one_by_one() -> None:
    with limited("jobs=3") as (api, _):
        batch = api("POST", "/jobs/batch", {"jobs": [DAILY] * 5})
        assert [one["status"] for one in batch.json["results"]] == [202] * 3 + [429] * 2
        refused = api("POST", "/jobs", DAILY)
        assert (refused.status, refused.headers["retry-after"]) == (429, "60")
        assert "cancel some" in refused.json["detail"]


def test_orders_beyond_the_minutes_number_are_refused() -> None:
    with limited("runs_per_minute=2") as (api, _):
        job_id = api("POST", "/jobs", DAILY).json["job_id"]
        assert api("POST", f"/jobs/{job_id}/runNow").status == 202
        once = {"name": "now", "schedule_type": "IMMEDIATE"}
        assert api("POST", "/jobs", once).status == 202
        for refused in (api("POST", f"/jobs/{job_id}/runNow"), api("POST", "/jobs", once)):
            assert refused.status == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 71


def test_a_change_that_runs_a_job_at_once_is_an_order() -> None:
    with limited("runs_per_minute=1") as (api, _):
        one, two = (api("POST", "/jobs", DAILY).json["job_id"] for _ in range(2))
        once = {"schedule_type": "IMMEDIATE"}
        assert api("PATCH", f"/jobs/{one}", once).status == 200
        refused = api("PATCH", f"/jobs/{two}", once)
        assert (refused.status, refused.json["code"]) == (429, "LIMIT_EXCEEDED")
        assert api("GET", f"/jobs/{two}").json["schedule_type"] == "CRON"
        assert api("PATCH", f"/jobs/{one}", {"name": "renamed"}).status == 200


def test_while_the_control_table_is_away_calls_go_on_within_bounds_and_it_is_told() -> None:
    with limited("calls_per_second=5 jobs=100 runs_per_minute=100") as (api, clock):
        assert api("GET", "/whoami").status == 200
        clock.move(61)  # what was known has to be read again, too
        with control_away(api.store):
            answers = [api("GET", "/whoami") for _ in range(5)]
            # What it had set aside, and then little, for it had little.
            assert [one.status for one in answers] == [200, 200, 200, 429, 429]
            assert answers[-1].headers["retry-after"] == "1"
            clock.move(1)
            assert api("POST", "/jobs", DAILY).status in (202, 503)
        told = [line for one in api.told.values() for line in one.lines if line.get("problem")]
        assert {"limits_unread", "limits_unavailable"} <= {line["event"] for line in told}
        clock.move(10)
        assert api("POST", "/jobs", DAILY).status == 202


def receives(records: list[Any], number: int) -> list[Any]:
    for one in records:
        one["attributes"]["ApproximateReceiveCount"] = str(number)
    return records


def test_what_may_not_start_goes_back_and_starts_later() -> None:
    with executing("runs_per_minute=2") as world:
        jobs = [world.submit(priority=one) for one in ("LOW", "NORMAL", "HIGH")]
        records = world.records()
        back = world.invoke(records)
        assert len(back) == 1
        assert [world.status(one) for one in jobs] == [
            RunStatus.QUEUED,
            RunStatus.SUCCESS,
            RunStatus.SUCCESS,
        ]
        ((_, hidden),) = world.hidden
        assert 60 <= hidden <= 80
        assert world.tell.count(Metric.LIMITED) == 1
        world.clock.advance(timedelta(seconds=hidden + 1))
        again = [one for one in records if one["messageId"] in back]
        assert world.invoke(receives(again, 2)) == []
        assert world.status(jobs[0]) is RunStatus.SUCCESS


def test_of_one_batch_the_next_starts_where_one_has_ended() -> None:
    with executing("concurrent_runs=2") as world:
        jobs = [world.submit(payload={"lasts": 0.3}) for _ in range(6)]
        assert world.invoke(world.records()) == []
        assert {world.status(one) for one in jobs} == {RunStatus.SUCCESS}
        begun, ended = sorted(world.hands.begun_at), sorted(world.hands.ended_at)
        for number, at in enumerate(begun[2:], start=2):
            assert at >= ended[number - 2]


def test_however_often_a_limit_holds_it_back_a_run_is_never_taken_for_dead() -> None:
    with executing("runs_per_minute=1") as world:
        world.submit()
        waiting = world.submit(priority="LOW")
        records = world.records()
        (back,) = world.invoke(records)
        (mine,) = [one for one in records if one["messageId"] == back]
        world.clock.advance(timedelta(seconds=10))
        assert world.invoke(receives([mine], 40)) == []  # it is gone, and a timer stands
        assert world.status(waiting) is RunStatus.QUEUED
        world.clock.advance(timedelta(minutes=6))
        world.look()
        sent = world.records()
        assert [json.loads(one["body"])["j"] for one in sent] == [waiting.job_id]
        assert world.invoke(sent) == []
        assert world.status(waiting) is RunStatus.SUCCESS


def test_runs_start_while_the_control_table_is_away() -> None:
    with executing("runs_per_minute=1 concurrent_runs=1") as world:
        jobs = [world.submit() for _ in range(2)]
        records = world.records()
        with control_away(world.aws):
            world.invoke(records)
        assert {world.status(one) for one in jobs} == {RunStatus.SUCCESS}
        assert "limits_unavailable" in {event for event, _ in world.tell.problems}


def session_of(store: Moto) -> Any:
    """What the tool needs of a session; the function's settings are this store's."""
    variables = store.settings.to_env()
    function = SimpleNamespace(
        get_function_configuration=lambda **_: {"Environment": {"Variables": variables}},
        exceptions=SimpleNamespace(ResourceNotFoundException=KeyError),
    )
    arn = "arn:aws:sts::123456789012:assumed-role/Operator/grace"
    said = {"Account": "123456789012", "Arn": arn}
    identity = SimpleNamespace(get_caller_identity=lambda: said)
    clients = {"lambda": function, "dynamodb": store.clients.dynamodb, "sts": identity}
    return SimpleNamespace(region_name="eu-central-1", client=clients.__getitem__)


def test_the_operators_tool_shows_sets_and_gives_up(capsys: pytest.CaptureFixture[str]) -> None:
    with limited("jobs=7") as (api, _):
        session = session_of(api.store)

        def run(*arguments: str) -> tuple[int, str]:
            code = tool.main(["dev", *arguments], session)
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        assert run("default", "runs_per_minute=30", "jobs=null")[0] == 0
        code, said = run("default")
        assert code == 0
        assert "runs_per_minute   30" in said
        assert "jobs              no limit" in said
        assert api("GET", "/whoami").json["limits"]["runs_per_minute"] == 30
        assert "jobs              7" in run("default", "default")[1]
        for wrong in ("jobs", "jobs=0", "job=1"):
            code, said = run("default", wrong)
            assert (code, said.startswith("limits: ")) == (1, True)
        assert run()[0] == 1


def test_what_an_operator_changes_has_its_line_in_the_tenants_audit() -> None:
    with limited("jobs=7 burst=9") as (api, _):
        session = session_of(api.store)
        for said in (["jobs=5", "burst=9"], ["jobs=5"], ["default"], ["default"]):
            assert tool.main(["dev", "default", *said], session) == 0
        given, taken = api("GET", "/audit?action=limits.change").json["entries"][::-1]
        assert (given["before"], given["after"]) == ({"jobs": 7}, {"jobs": 5})
        assert (taken["before"], taken["after"]) == ({"jobs": 5}, {"jobs": 7})
        assert {one["caller"] for one in (given, taken)} == {"grace"}
        assert given["request_id"] != taken["request_id"]
        assert tool.main(["dev", "other", "jobs=1"], session) == 0
        assert len(api("GET", "/audit?action=limits.change").json["entries"]) == 2


def test_whoever_changed_them_at_the_same_time_is_not_overwritten_and_nothing_is_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with limited("jobs=7") as (api, _):
        read = tool.own

        def slow(*asked: Any) -> Any:
            found = read(*asked)
            write(api.store, "default", jobs=3)
            return found

        monkeypatch.setattr(tool, "own", slow)
        assert tool.main(["dev", "default", "jobs=5"], session_of(api.store)) == 1
        assert "at the same time" in capsys.readouterr().err
        assert read(session_of(api.store), api.store.settings, "default") == {"jobs": 3}
        assert api("GET", "/audit?action=limits.change").json["entries"] == []


def test_the_tool_says_where_a_stage_has_no_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with limited(None) as (api, _):
        assert tool.main(["dev", "acme"], session_of(api.store)) == 1
        assert "set `limits` in cdk.json" in capsys.readouterr().err


@pytest.mark.parametrize("limits", ["concurrent_runs=1", "lane_percent=25"])
def test_a_tenants_slow_run_keeps_its_executors_from_more_than_their_part(limits: str) -> None:
    """Four executors take from the queue: a quarter of them is one."""
    with executing(limits) as world:
        slow, other = world.submit(payload={"lasts": 25}), world.submit()
        records = world.records()
        second: list[list[str]] = []
        elsewhere = world.new_runtime()

        def invoke_elsewhere() -> None:
            second.append(world.invoke(records[1:], runtime=elsewhere))

        world.hands.at(NOON + timedelta(seconds=20), invoke_elsewhere)
        assert world.invoke(records[:1]) == []
        assert len(second[0]) == 1  # places were renewed: 20 s are over
        assert world.status(slow) is RunStatus.SUCCESS
        assert world.status(other) is RunStatus.QUEUED  # it waits, and does not fail
        assert world.invoke(receives(records[1:], 2), runtime=elsewhere) == []
        assert world.status(other) is RunStatus.SUCCESS
