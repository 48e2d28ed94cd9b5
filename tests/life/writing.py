"""The setting that says in which layout rows are written, turned while jobs run."""

from dataclasses import replace

from punctual.aws.dynamodb import keys
from punctual.settings import LAYOUTS
from tests.life.world import World

FORMER, NEWEST = LAYOUTS[-2:]


def deploy_writing(world: World, layout: int) -> None:
    """As a deploy with another `writes` in cdk.json does: every environment is replaced."""
    functions = {
        name: replace(one, env={**one.env, "PUNCTUAL_WRITES": str(layout)})
        for name, one in world.deployed.functions.items()
    }
    world.deployed = replace(world.deployed, functions=functions)
    world.deploy_again()


def shared(world: World) -> int:
    """Rows of timers that several share: what the runbook counts."""
    return sum(keys.FORMAT in row for row in world.rows(keys.TIMERS))
