"""Reserved concurrency of a stage, its scale, and the needs of each function."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.app import read_context
from infra.config.concurrency import (
    BUSY_STREAM_SHARDS,
    MAX_CONCURRENCY_PERCENT,
    MAX_STARTS_PER_SECOND,
    MIN_CONCURRENCY_PERCENT,
    Concurrency,
)
from infra.config.stage import Stage, WrongStage, read_stage

API_FUNCTIONS = ("authorizer", "job-service", "job-search")  # the functions of a request


def prod(**values: Any) -> Stage:
    stages = read_context()["stages"]
    return read_stage("prod", {"prod": {**stages["prod"], **values}})


def reserving(**changes: int) -> Mapping[str, int]:
    named = {name.replace("_", "-"): number for name, number in changes.items()}
    return {**read_context()["stages"]["prod"]["reservedConcurrency"], **named}


def test_prod_fits_into_the_default_limit_of_an_account() -> None:
    """An account has 1,000 executions, of which Lambda keeps 100 unreserved."""
    assert prod().concurrency.total_reserved <= 900


def test_api_functions_serve_the_allowed_request_rate() -> None:
    stage = prod()
    for name in API_FUNCTIONS:
        assert stage.reserved[name] * MAX_STARTS_PER_SECOND >= stage.throttle.rate, name
    assert stage.reserved["claims"] * MAX_STARTS_PER_SECOND >= stage.claim_throttle.rate


@pytest.mark.parametrize("name", API_FUNCTIONS)
def test_function_below_the_request_rate_is_named(name: str) -> None:
    few = reserving(**{name.replace("-", "_"): 99})
    with pytest.raises(WrongStage, match=f"reservedConcurrency.{name}` must be at least the 100 "):
        prod(reservedConcurrency=few)


def test_claims_function_below_its_own_request_rate_is_named() -> None:
    with pytest.raises(WrongStage, match=r"claims` must be at least the 15 that `claimThrottle.r"):
        prod(reservedConcurrency=reserving(claims=14))


@pytest.mark.parametrize("percent", range(MIN_CONCURRENCY_PERCENT, MAX_CONCURRENCY_PERCENT + 1, 13))
def test_status_function_has_30_executions_for_each_shard_batch(percent: int) -> None:
    concurrency = prod(concurrencyPercent=percent).concurrency
    factor = concurrency.status_batches
    assert 1 <= factor <= 4
    assert concurrency.reserved["status"] >= BUSY_STREAM_SHARDS * factor


def test_status_function_below_its_stream_concurrency_is_refused() -> None:
    with pytest.raises(WrongStage, match=r"status` must be at least the 30 sh"):
        prod(reservedConcurrency=reserving(status=29))


def test_status_function_without_reservation_takes_one_batch_for_each_shard() -> None:
    assert read_stage("dev", read_context()["stages"]).concurrency.status_batches == 1


def test_concurrency_percent_scales_reservations_lanes_and_request_rate() -> None:
    full_size, half = prod(), prod(concurrencyPercent=50)
    assert half.concurrency.total_reserved == pytest.approx(
        full_size.concurrency.total_reserved / 2, abs=5
    )
    assert half.lanes == {"quick": {"high": 40, "normal": 40, "low": 20}, "long": {"all": 70}}
    assert (half.throttle.rate, half.throttle.burst) == (500, 1000)
    assert half.reserved["executor-quick"] == 100
    double = prod(concurrencyPercent=200)
    assert double.concurrency.total_reserved == 2 * full_size.concurrency.total_reserved


@pytest.mark.parametrize("percent", range(MIN_CONCURRENCY_PERCENT, 300, 7))
def test_scaled_stage_satisfies_all_limits(percent: int) -> None:
    stage = prod(concurrencyPercent=percent)
    for lane, queues in stage.lanes.items():
        assert stage.reserved[f"executor-{lane}"] >= sum(queues.values())
        assert min(queues.values()) >= 2
    assert stage.pollers >= 2
    for name in API_FUNCTIONS:
        assert stage.reserved[name] * MAX_STARTS_PER_SECOND >= stage.throttle.rate
    assert min(stage.reserved.values()) >= 1


def test_queue_over_the_event_source_maximum_is_named() -> None:
    lanes = {"quick": {"high": 300, "normal": 2, "low": 2}, "long": {"all": 140}}
    reserved = reserving(executor_quick=304)
    with pytest.raises(WrongStage, match=r"`lanes.quick.high` must be at most 1000; got 1200"):
        prod(lanes=lanes, reservedConcurrency=reserved, concurrencyPercent=400)


def test_largest_fitting_scale_is_found() -> None:
    concurrency = prod().concurrency
    fitting = concurrency.largest_fitting(400)
    assert fitting is not None
    assert fitting.total_reserved <= 400
    larger = Concurrency(fitting.percent + 1, concurrency.lane_executors, concurrency.reservations)
    assert larger.total_reserved > 400
    assert concurrency.largest_fitting(10_000) == concurrency
    assert concurrency.largest_fitting(50) is None


@pytest.mark.parametrize("percent", [9, 401, "50", 50.5, True])
def test_concurrency_percent_out_of_range_is_refused(percent: Any) -> None:
    with pytest.raises(WrongStage, match="`concurrencyPercent` must be 10 to 400"):
        prod(concurrencyPercent=percent)
