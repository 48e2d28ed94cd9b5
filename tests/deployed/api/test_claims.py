"""External executors of a deployment, which hold only a signed claim."""

from collections.abc import Iterator

import pytest

from tests.support.claims.deployed import OutsideExecutor, play_claims
from tests.support.deployed.grants import grants, unused
from tests.support.deployed.privilege import needed
from tests.support.deployed.scenes import open_api
from tests.support.deployed.world import MINUTE, SECOND, World, a_world


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.fixture
def outside(world: World) -> OutsideExecutor:
    return OutsideExecutor(world, open_api(world))


def test_claims_function_uses_all_its_rights_and_needs_no_other(
    world: World, outside: OutsideExecutor
) -> None:
    play_claims(world, outside.api)
    assert world.failures == []
    role = world.name("claims")
    used = frozenset(
        right for call in world.meter.calls if call.role == role for right in needed(call)
    )
    assert unused(grants(role, world.deployed.policies[role]), used) == []


def test_run_is_followed_finished_and_read(outside: OutsideExecutor) -> None:
    claim = outside.start_run()
    held = {"claim": claim, "runner_id": "one"}
    assert outside.renew({**held, "started_at": "2026-03-02T12:00:00Z", "log": "1\n"}) == ["OK"]
    assert outside.renew({"claim": claim, "runner_id": "two"}) == ["LOST"]
    assert outside.renew({**held, "log": "22\n", "log_offset": 2}) == ["OK"]
    assert (outside.log_of(claim), outside.log_of(claim, 2)) == ("1\n22\n", "22\n")
    assert outside.run_of(claim)["status"] == "RUNNING"
    end = {**held, "status": "SUCCESS", "output": [1, 2], "log": "333\n", "log_offset": 5}
    assert outside.finish(end) == ["OK"]
    assert outside.log_of(claim) == "1\n22\n333\n"
    assert outside.output_of(claim) == b"[1,2]"


def test_run_of_a_dead_executor_is_done_by_another_one(
    world: World, outside: OutsideExecutor
) -> None:
    claim = outside.start_run()
    assert outside.renew({"claim": claim, "started_at": "2026-03-02T12:00:00Z"}) == ["OK"]
    world.run(2 * MINUTE)
    run = outside.run_of(claim)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 2)
    assert outside.renew({"claim": claim}) == ["LOST"]
    assert outside.finish({"claim": claim, "status": "FAILED"}) == ["LOST"]
    assert outside.run_of(claim) == run


def test_uploaded_output_is_that_of_the_run(outside: OutsideExecutor) -> None:
    claim = outside.start_run()
    output_upload = outside.upload(claim, b"a,b\n1,2\n", "text/csv")
    end = {"claim": claim, "status": "SUCCESS", "output_upload": output_upload}
    assert outside.finish(end) == ["OK"]
    assert outside.output_of(claim) == b"a,b\n1,2\n"
    late = {"claim": claim, "size": 1, "content_type": "text/csv"}
    refused = outside.post("/claims/upload", late)
    assert (refused.status, refused.json["code"]) == (409, "CLAIM_LOST")


def test_upload_of_a_released_claim_is_not_the_output_of_the_next_one(
    outside: OutsideExecutor,
) -> None:
    claim = outside.start_run()
    early = outside.upload_link(claim, 3, "text/csv")
    own = outside.release_and_claim_again(claim)
    link = outside.upload_link(own, 3, "text/csv")
    assert outside.put(early, b"bad") == 200
    assert outside.put(link, b"own") == 412
    again = outside.upload_link(own, 3, "text/csv")
    assert outside.put(again, b"own") == 200
    assert [outside.put(each, b"bad") for each in (early, link, again)] == [412] * 3
    end = {"claim": own, "status": "SUCCESS", "output_upload": again["output_upload"]}
    assert outside.finish(end) == ["OK"]
    assert outside.output_of(claim) == b"own"
    assert outside.run_of(claim)["attempt_number"] == 1


def test_progress_is_shown_while_the_run_goes_on(outside: OutsideExecutor) -> None:
    claim = outside.start_run()
    progress = {"percent": 62.5, "text": "sorting"}
    assert outside.renew({"claim": claim, "progress": progress}, {"claim": claim}) == ["OK"] * 2
    assert outside.shown_run(claim)["progress"] == progress
    assert outside.finish({"claim": claim, "status": "SUCCESS"}) == ["OK"]
    assert outside.shown_run(claim)["progress"] is None


def test_released_run_starts_elsewhere_as_the_same_attempt(
    world: World, outside: OutsideExecutor
) -> None:
    claim = outside.start_run(delivery="AT_MOST_ONCE")
    assert outside.finish({"claim": claim, "status": "RELEASED"}) == ["OK"]
    world.run(20 * SECOND)
    run = outside.run_of(claim)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)


def test_forged_claims_cost_no_read_of_the_store(world: World, outside: OutsideExecutor) -> None:
    claim = outside.start_run()
    assert outside.renew({"claim": claim}) == ["OK"]
    began = len(world.meter.calls)
    forged = [{"claim": f"{claim[:-1]}{end}"} for end in "abcdefgh" if end != claim[-1]]
    assert set(outside.renew(*forged)) == {"LOST"}
    called = {call.service for call in world.meter.calls[began:]}
    assert called <= {"logs", "billing"}
