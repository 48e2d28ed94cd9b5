"""A valid stage is read completely, and every wrong setting of a stage is named."""

from typing import Any

import pytest
from aws_cdk import App

from infra.app import read_context
from infra.config.stage import (
    FUNCTION_NAMES,
    MIN_POLLER_MEMORY_MB,
    WrongStage,
    read_stage,
    stage_of,
)
from punctual.engine.dispatch.on_demand.wakeup_times import CORE_THROUGHPUT, SLOWEST_THROUGHPUT
from punctual.lambdas import runtime
from tests.support.infra.synthesis import DOMAIN, ISSUER, VPC


def dev(**values: Any) -> dict[str, Any]:
    return {"dev": {**read_context()["stages"]["dev"], **values}}


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_stages_of_cdk_json_are_valid(name: str) -> None:
    stage = stage_of(App(context={**read_context(), "stage": name}, analytics_reporting=False))
    assert (stage.name, stage.protected) == (name, name == "prod")
    assert set(stage.memory) == set(FUNCTION_NAMES)


def test_dev_stage_uses_the_minimum_concurrency_of_event_sources() -> None:
    """A new account has ten executions. Each event source may start at least two."""
    stage = read_stage("dev", read_context()["stages"])
    assert {number for queues in stage.lanes.values() for number in queues.values()} == {2}
    assert (stage.pollers, stage.reserved) == (2, {})


@pytest.mark.parametrize(
    ("name", "minimum"),
    [("executor-quick", 6), ("executor-long", 2), ("poller", 2)],
)
def test_queues_of_a_function_share_its_reserved_concurrency(name: str, minimum: int) -> None:
    assert read_stage("dev", dev(reservedConcurrency={name: minimum})).reserved == {name: minimum}
    with pytest.raises(WrongStage, match=f"reservedConcurrency.{name}` must be at least the"):
        read_stage("dev", dev(reservedConcurrency={name: minimum - 1}))


def test_poller_memory_covers_the_assumed_throughput() -> None:
    memory = read_context()["stages"]["dev"]["memory"]
    assert read_stage("dev", dev(memory={**memory, "poller": MIN_POLLER_MEMORY_MB})).memory
    with pytest.raises(WrongStage, match="poller` must be at least 256: pollers are"):
        read_stage("dev", dev(memory={**memory, "poller": MIN_POLLER_MEMORY_MB - 1}))
    assert MIN_POLLER_MEMORY_MB == runtime.MIN_FUNCTION_MEMORY_MB
    counted = CORE_THROUGHPUT.scaled(MIN_POLLER_MEMORY_MB / runtime.MEMORY_MB_PER_CORE)
    assert counted == pytest.approx(SLOWEST_THROUGHPUT, rel=0.01)


def test_optional_settings_are_read() -> None:
    address = "on-call@example.com"
    stage = read_stage("dev", dev(vpc=VPC, domain=DOMAIN, alarms=True, alarmEmail=address))
    assert stage.vpc is not None
    assert stage.domain is not None
    assert (stage.vpc.subnets, stage.domain.name) == (("subnet-0a1b2c3d",), "jobs.example.com")
    assert stage.alarm_email == address


@pytest.mark.parametrize(
    ("name", "stages", "message"),
    [
        (
            "qa",
            read_context()["stages"],
            "cdk.json has no stage 'qa'; it has dev, prod, rehearsal",
        ),
        ("dev", None, "cdk.json has no stage 'dev'; it has none"),
        ("dev", {"dev": []}, "`` must be an object"),
    ],
)
def test_unknown_stage_is_named(name: str, stages: Any, message: str) -> None:
    with pytest.raises(WrongStage) as raised:
        read_stage(name, stages)
    assert message in str(raised.value)


EACH = {"high": 2, "normal": 2, "low": 2}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"protected": "yes"}, "`protected` must be true or false; got 'yes'"),
    ({"retentionDays": 0}, "`retentionDays` must be 1 to 3650; got 0"),
    ({"retentionDays": True}, "`retentionDays` must be 1 to 3650; got True"),
    ({"retentionDays": 1.5}, "`retentionDays` must be 1 to 3650; got 1.5"),
    ({"logRetentionDays": 8}, "`logRetentionDays` must be one of 1, 3, 5, 7"),
    ({"shards": 1001}, "`shards` must be 1 to 1000; got 1001"),
    ({"metrics": None}, "`metrics` is not set"),
    ({"runEvents": "some"}, "`runEvents` must be one of all, ended, none; got 'some'"),
    ({"runEvents": []}, "`runEvents` must be one of all, ended, none; got []"),
    ({"lanes": {"quick": {"all": 2}}}, "`lanes.long` is not set"),
    (
        {"lanes": {"quick": {"all": 2}, "long": {"all": 2}}},
        "`lanes.quick` must have `high`, `normal` and `low`",
    ),
    (
        {"lanes": {"quick": EACH, "long": {"high": 2}}},
        "`lanes.long` must have `all`, or `high`, `normal` and `low`",
    ),
    (
        {"lanes": {"quick": EACH, "long": {"all": 1}}},
        "`lanes.long.all` must be 2 to 1000; got 1",
    ),
    ({"reservedConcurrency": {"plan": 1}}, "`reservedConcurrency.plan` is unknown; allowed are au"),
    ({"reservedConcurrency": {"planner": 0}}, "`reservedConcurrency.planner` must be 1 to 10000"),
    ({"memory": {"planner": 128}}, "`memory.poller` is not set"),
    ({"throttle": {"rate": 0, "burst": 1}}, "`throttle.rate` must be 1 to 10000; got 0"),
    ({"corsOrigins": ["*"]}, "`corsOrigins` must be a list of origins"),
    ({"corsOrigins": "https://a.example"}, "`corsOrigins` must be a list of origins"),
    ({"oidcIssuer": "https://id.example.com"}, "`oidcIssuer` must be an object or null; got"),
    ({"oidcIssuer": {"issuer": ISSUER["issuer"]}}, "`oidcIssuer.audience` is not set"),
    *(
        ({"oidcIssuer": {**ISSUER, "issuer": wrong}}, "`oidcIssuer.issuer` must be an https URL")
        for wrong in ("http://127.0.0.1:1", "https://", "https://a.example/?b", "id", 7)
    ),
    (
        {"oidcIssuer": {**ISSUER, "tenantClaim": "a b"}},
        "`oidcIssuer.tenantClaim` must be the name of a claim",
    ),
    ({"oidcIssuer": {**ISSUER, "clientId": ""}}, "`oidcIssuer.clientId` must be the client id"),
    ({"oidcIssuer": {**ISSUER, "scope": "x"}}, "`oidcIssuer.scope` is unknown"),
    ({"domain": {"name": "jobs.example.com"}}, "`domain.certificateArn` is not set"),
    ({"domain": {**DOMAIN, "zone": "x"}}, "`domain.zone` is unknown"),
    ({"vpc": {**VPC, "subnets": []}}, "`vpc.subnets` must be a list of at least one subnet-…"),
    (
        {"tasksMayReach": {"functions": {"*": ["a b"]}, "queues": {}}},
        "`tasksMayReach.functions.*` must be",
    ),
    (
        {"tasksMayReach": {"functions": {"acme": ["*"]}, "queues": {}}},
        "`tasksMayReach.functions.acme` must be",
    ),
    ({"tasksMayReach": {"functions": {}, "queues": {}}}, "`tasksMayReach.networks` is not set"),
    *(
        (
            {"tasksMayReach": {"functions": {}, "queues": {}, "networks": wrong}},
            "`tasksMayReach.networks` must be a list of private networks, 10.1.0.0/16; got",
        )
        for wrong in (
            ["0.0.0.0/0"],
            ["169.254.169.254/32"],
            ["10.1.2.3/8"],
            ["::/0"],
            [7],
            "x",
            [""],
        )
    ),
    *(
        (
            {"tasksMayReach": {"functions": {"*": [name]}, "queues": {}, "networks": []}},
            "`tasksMayReach.functions.*` must be a list of names",
        )
        for name in ("punctual-dev-planner", "punctual-*", "punctual*", "p*", "*")
    ),
    (
        {"tasksMayReach": {"functions": ["task-a"], "queues": {}, "networks": []}},
        "`tasksMayReach.functions` must be an object",
    ),
    (
        {"tasksMayReach": {"functions": {}, "queues": {"a/b": []}, "networks": []}},
        "`tasksMayReach.queues`: 'a/b' is not a tenant or *",
    ),
    (
        {
            "tasksMayReach": {
                "functions": {"*": [f"task-{number:04}" for number in range(200)]},
                "queues": {},
                "networks": [],
            }
        },
        "`tasksMayReach` must be at most 1500 characters",
    ),
    ({"alarmEmail": "no-address"}, "`alarmEmail` must be an address or null; got 'no-address'"),
    ({"retention": 7}, "`retention` is unknown"),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_wrong_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongStage) as raised:
        read_stage("dev", dev(**values))
    assert str(raised.value).startswith("stage 'dev': ")
    assert message in str(raised.value)


def test_image_of_scripts_is_a_name_or_null() -> None:
    for image in (None, "scripts:4", "1.dkr.ecr.eu-west-1.amazonaws.com/a/scripts@sha256:0f"):
        assert read_stage("dev", dev(scriptsImage=image)).scripts_image == image
    for wrong in ("", "two words", 4, "-scripts"):
        with pytest.raises(WrongStage, match="`scriptsImage` must be the name of an image"):
            read_stage("dev", dev(scriptsImage=wrong))


def test_all_wrong_settings_are_named() -> None:
    with pytest.raises(WrongStage) as raised:
        read_stage("dev", {"dev": {"shards": 0, "pace": "fast", "colour": "red"}})
    for field in ("`protected` is not set", "`shards` must", "`pace` must", "`colour` is unknown"):
        assert field in str(raised.value)
