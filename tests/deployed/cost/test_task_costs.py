"""The price of a run of a script or a container follows its calls, its time and its memory."""

import pytest

from bench.cost.accounts import sum_dollars
from bench.cost.meter import Unit
from bench.cost.prices import MILLION, prices
from bench.cost.task_runs import (
    SHOWN_SCRIPTS,
    added_dollars,
    container_cost,
    large_output_section,
    script_cost,
    sweep_dollars,
    task_runs_section,
)
from bench.cost.words import short_role
from infra.app import read_context
from infra.config.stage import Stage, read_stage
from tests.support.containers.costs import CONTAINER_RUN, IDLE_SWEEP, container_costs
from tests.support.deployed.scenes import Counted
from tests.support.deployed.template import synthesised
from tests.support.scripts.costs import RUNNER_SECONDS, SCRIPT_RUNS, script_run_costs


@pytest.fixture(scope="module")
def stage() -> Stage:
    return read_stage("dev", read_context()["stages"])


def amounts(counted: Counted, unit: Unit, role: str) -> dict[str, float]:
    """Return the units of a run that a function spent, by purpose."""
    return {
        line.purpose: round(line.amount, 4)
        for line in counted.lines
        if line.unit is unit and short_role(line.role) == role
    }


def script(name: str, unit: Unit, role: str) -> dict[str, float]:
    return amounts(script_run_costs()[name], unit, role)


def container(unit: Unit, role: str) -> dict[str, float]:
    return amounts(container_costs()[CONTAINER_RUN], unit, role)


def test_function_is_paid_for_the_time_of_the_script(stage: Stage) -> None:
    parts = script_cost("long", 60, stage, prices()).parts
    gigabytes = (512 + 128) / 1024
    dollars = 0.2 + 16.6667 * gigabytes * (60 + RUNNER_SECONDS)
    assert parts["the function of the script"] == pytest.approx(dollars)


def test_disk_above_the_free_one_is_paid_for_the_same_time(stage: Stage) -> None:
    parts = script_cost("long", 60, stage, prices()).parts
    dollars = 0.0309 * 1.5 * (60 + RUNNER_SECONDS)
    assert parts["its disk above 512 MB"] == pytest.approx(dollars)


def test_executor_waits_for_short_scripts_only() -> None:
    gigabytes, run = 0.5, SCRIPT_RUNS["short"]
    waited = script("short", Unit.GB_SECOND, "executor-long")["waiting"]
    assert waited >= gigabytes * (run.seconds + RUNNER_SECONDS)
    assert script("long", Unit.GB_SECOND, "executor-long")["waiting"] < gigabytes / 10


def test_runner_of_a_short_script_makes_no_call() -> None:
    assert script("short", Unit.API, "gateway") == {}
    assert script("short", Unit.REQUEST, "claims") == {}


def test_runner_of_a_long_script_renews_each_4_s_and_finishes_once() -> None:
    calls = script("long", Unit.API, "gateway")
    assert calls == {"POST /claims/renew": 15, "POST /claims/finish": 1}
    assert script("long", Unit.PUT, "claims") == {}, "it prints nothing"


def test_each_renewal_of_a_script_that_prints_puts_a_part_of_the_log() -> None:
    puts = script("long print", Unit.PUT, "claims")
    assert puts["outputs: PutObject"] == 1
    assert puts["logs: PutObject"] >= 14


def test_short_script_stores_output_and_log_whatever_their_size() -> None:
    stored = {"outputs: PutObject": 1, "logs: PutObject": 1}
    for name in ("short print", "short large"):
        assert script(name, Unit.PUT, "executor-long") == stored
    assert script("short", Unit.PUT, "executor-long") == {}


def test_large_output_of_a_long_script_never_passes_the_functions() -> None:
    assert script("long large", Unit.PUT, "runner") == {"outputs: PutObject": 1}
    assert "outputs: PutObject" not in script("long large", Unit.PUT, "claims")
    assert script("long large", Unit.API, "gateway")["POST /claims/upload"] == 1


def test_artifact_costs_a_read_and_a_download() -> None:
    assert script("artifact", Unit.GET, "runner") == {"artifacts: GetObject": 1}
    row = "control: #artifacts"
    assert script("artifact", Unit.READ, "executor-long")[row] == 1
    assert row not in script("long", Unit.READ, "executor-long")


def test_secret_costs_one_request_of_kms() -> None:
    assert script("secret", Unit.KMS, "executor-long") == {"GetParameter": 1}
    assert script("short", Unit.KMS, "executor-long") == {}


def test_container_starts_with_rows_of_its_own_and_two_files() -> None:
    writes = container(Unit.WRITE, "executor-long")
    assert writes["control: #containers"] == 2, "before the call, and with the task after it"
    assert writes["control: #share"] == 2, "the rate of starts, and the processors"
    assert container(Unit.PUT, "executor-long") == {"outputs: PutObject": 2}


def test_container_is_followed_by_five_events_and_a_sweep() -> None:
    (invocations,) = container(Unit.REQUEST, "containers").values()
    assert invocations == 6
    writes = container(Unit.WRITE, "containers")
    assert writes["control: #containers deleted"] == 1
    assert writes["runs: run"] == 1
    assert container(Unit.PUT, "containers") == {"logs: PutObject": 1}


def test_fargate_and_its_address_are_paid_for_the_life_of_the_task() -> None:
    parts = container_cost(prices()).parts
    seconds = 30 + 60 + 10
    per_second = (0.25 * 0.04048 + 0.5 * 0.004445) / 3600
    assert parts["Fargate"] == pytest.approx(per_second * seconds * MILLION)
    assert parts["the public address"] == pytest.approx(0.005 / 3600 * seconds * MILLION)


def test_sweep_without_containers_reads_and_writes_little() -> None:
    counted = container_costs()[IDLE_SWEEP]
    assert not any(line.unit in (Unit.WRITE, Unit.PUT) for line in counted.lines)
    assert sum(amounts(counted, Unit.READ, "containers").values()) == 2
    assert sweep_dollars() <= 0.031


def test_stages_without_containers_have_nothing_of_them() -> None:
    for stage in ("dev", "prod"):
        kinds = {
            resource["Type"]
            for stack in synthesised(stage)
            for resource in stack.template["Resources"].values()
        }
        assert not [kind for kind in kinds if kind.startswith(("AWS::ECS::", "AWS::EC2::"))]


def test_network_of_containers_has_no_part_that_is_paid_by_the_hour() -> None:
    (stack,) = (
        stack
        for stack in synthesised("dev", with_containers=True)
        if stack.name.endswith("Containers")
    )
    resources = stack.template["Resources"].values()
    kinds = {resource["Type"] for resource in resources}
    assert "AWS::EC2::Subnet" in kinds
    assert not kinds & {"AWS::EC2::NatGateway", "AWS::EC2::EIP", "AWS::ECS::Service"}
    endpoints = [each for each in resources if each["Type"] == "AWS::EC2::VPCEndpoint"]
    assert [each["Properties"]["VpcEndpointType"] for each in endpoints] == ["Gateway"]


CEILINGS = {
    "short": 48.50,
    "short print": 58.52,
    "short large": 58.42,
    "long": 119.89,
    "long print": 201.31,
    "long large": 149.53,
    "artifact": 120.40,
    "secret": 51.56,
    CONTAINER_RUN: 126.76,
}


@pytest.mark.parametrize("name", CEILINGS)
def test_run_costs_at_most_its_limit(name: str) -> None:
    counted = {**script_run_costs(), **container_costs()}[name]
    assert sum_dollars(counted.lines) <= CEILINGS[name]


def test_every_kind_of_run_has_a_cost_limit() -> None:
    assert CEILINGS.keys() == {*SCRIPT_RUNS, CONTAINER_RUN}


def test_report_has_a_column_for_each_run(stage: Stage) -> None:
    text = "\n".join(task_runs_section(stage, prices()))
    assert "| paid for | script, 1 s | script, 60 s | container, 60 s |" in text
    totals = [script_cost(name, seconds, stage, prices()) for name, seconds in SHOWN_SCRIPTS]
    totals.append(container_cost(prices()))
    assert f"| in all | {' | '.join(f'{cost.dollars:.2f}' for cost in totals)} |" in text


def test_report_prices_1_mb_of_output() -> None:
    text = "\n".join(large_output_section(prices()))
    assert f"by the executor that waits | {added_dollars('short large', 'short'):.2f} |" in text
    assert f"uploaded by the runner | {added_dollars('long large', 'long'):.2f} |" in text
