"""The daily walk corrects the counts of a tenant whose jobs run while they are counted."""

from tests.support.deployed.gateway import Gateway
from tests.support.deployed.left import EVENT
from tests.support.deployed.mending import recounted
from tests.support.deployed.scenes import submitted
from tests.support.deployed.world import MINUTE, World

MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *", "task": EVENT}


def test_counts_of_a_busy_tenant_are_corrected_and_right_ones_are_left(
    world: World, api: Gateway
) -> None:
    for _ in range(2):
        submitted(api, **MINUTELY)
    world.run(20 * MINUTE)
    recounted(world, {"job_SCHEDULED": 4, "job_PAUSED": -2, "run_RUNNING": 500})
    stats = api.get("/stats").json
    assert stats["jobs"] == {"SCHEDULED": 2}
    runs = 2 * 20  # made in the minutes around the walk, each of which moves the count by two
    assert stats["runs"].get("RUNNING", 0) <= 2 * 2 * runs
    assert stats["runs"].get("QUEUED", 0) <= 2
    told = [line for line in world.told() if line.get("message") == "counts_corrected"]
    assert [line["tenants"] for line in told] == [["default"]]


def test_right_counts_of_a_busy_tenant_are_left_as_they_are(world: World, api: Gateway) -> None:
    for _ in range(2):
        submitted(api, **MINUTELY)
    world.run(20 * MINUTE)
    recounted(world, {"run_SUCCESS": 0})
    assert api.get("/stats").json["jobs"] == {"SCHEDULED": 2}
    assert "counts_corrected" not in [line.get("message") for line in world.told()]
