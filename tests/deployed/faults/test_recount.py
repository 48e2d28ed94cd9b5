"""The daily walk corrects the counts of a tenant with running jobs."""

from tests.support.deployed.gateway import Gateway
from tests.support.deployed.interrupted_work import EVENT
from tests.support.deployed.repairs import recount_tenant
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, World

MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *", "task": EVENT}


def test_wrong_counts_of_a_busy_tenant_are_corrected(world: World, api: Gateway) -> None:
    for _ in range(2):
        submit_job(api, **MINUTELY)
    world.run(65 * MINUTE)  # no job has moved in this hour
    recount_tenant(world, {"job_SCHEDULED": 4, "job_PAUSED": -2, "run_RUNNING": 500})
    stats = api.get("/stats").json
    assert stats["jobs"] == {"SCHEDULED": 2}
    runs = 2 * 20  # runs near the walk, each moves the count by two
    assert stats["runs"].get("RUNNING", 0) <= 2 * 2 * runs
    assert stats["runs"].get("QUEUED", 0) <= 2
    told = [line for line in world.log_lines() if line.get("message") == "counts_corrected"]
    assert [line["tenants"] for line in told] == [["default"]]


def test_right_counts_of_a_busy_tenant_are_unchanged(world: World, api: Gateway) -> None:
    for _ in range(2):
        submit_job(api, **MINUTELY)
    world.run(20 * MINUTE)
    recount_tenant(world, {"run_SUCCESS": 0})
    assert api.get("/stats").json["jobs"] == {"SCHEDULED": 2}
    assert "counts_corrected" not in [line.get("message") for line in world.log_lines()]
