"""Container jobs in the life of a deployment, for the rights that they use."""

from datetime import timedelta
from typing import Any

from tests.support.containers.ecs import Ecs, Failures, LostAnswer
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

CONTAINER = {"type": "container", "image": "registry.example.com/report:1"}
LONG_SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}
AT_ONCE = {"schedule_type": "IMMEDIATE", "payload": {"day": "monday"}}


def stand_in_for_ecs(world: World) -> Ecs:
    """Let a stand-in answer the calls of ECS and of the logs of its tasks from here on."""
    ecs = Ecs(world.clock)

    def answer(client: Any) -> None:
        if client.meta.service_model.service_name in ("ecs", "logs"):
            ecs.answer(client)

    world.clients.add_observer(answer)
    return ecs


def play_containers(world: World, api: Gateway) -> Ecs:
    """Run containers and a long script, cancel one, reclaim one, refuse one, and lose an answer."""
    ecs = stand_in_for_ecs(world)
    _start(world, api)
    task = ecs.newest_task()
    ecs.run(task)
    ecs.print(task, "hello")
    ecs.exit(task, 0)
    _deliver_events(world, ecs)
    cancelled = _start(world, api)
    ecs.run(ecs.newest_task())
    _deliver_events(world, ecs)
    assert api.call("DELETE", f"/jobs/{cancelled}").status == 200
    sweep(world)
    assert ecs.newest_task().stop_requests
    ecs.stop_requested(ecs.newest_task())
    _deliver_events(world, ecs)
    _start(world, api)
    ecs.reclaim(ecs.newest_task())
    _deliver_events(world, ecs)  # the next attempt starts at once
    ecs.exit(ecs.newest_task(), 0)
    _deliver_events(world, ecs)
    ecs.plant("RunTask", *[LostAnswer()] * 5)
    _start(world, api)
    ecs.events.clear()
    world.run(2 * MINUTE)
    sweep(world)  # finds the task by its token
    ecs.exit(ecs.newest_task(), 0)
    _deliver_events(world, ecs)
    ecs.plant("RunTask", Failures("Capacity is unavailable at this time."))
    _start(world, api)  # nothing runs, and what it was to read is deleted
    world.run(2 * MINUTE)
    ecs.exit(ecs.newest_task(), 0)
    _deliver_events(world, ecs)
    ecs.definitions.clear()
    _start(world, api)  # the definition is gone, and is registered again
    world.run(2 * MINUTE)
    ecs.exit(ecs.newest_task(), 0)
    _deliver_events(world, ecs)
    script = _start(world, api, task=LONG_SCRIPT, timeout_seconds=1_000)
    ecs.exit(ecs.newest_task(), 1)  # before its runner begins
    _deliver_events(world, ecs)
    assert api.call("DELETE", f"/jobs/{script}").status == 200
    assert len(ecs.definitions) == 2
    return ecs


def sweep(world: World) -> None:
    world.invoke(world.name("containers"), {"detail-type": "Scheduled Event"})


def _start(world: World, api: Gateway, **fields: Any) -> str:
    job = submit_job(api, **{**AT_ONCE, "task": CONTAINER, **fields})
    world.run(20 * SECOND)
    return job


def _deliver_events(world: World, ecs: Ecs) -> None:
    for event in ecs.events:
        world.invoke(world.name("containers"), event)
    ecs.events.clear()
    world.run(5 * SECOND)


def remove_definitions(world: World, ecs: Ecs) -> None:
    """Sweep at the time of the daily cleanup, a month after the last container."""
    now = world.clock()
    cleanup = (now + timedelta(days=1)).replace(hour=4, minute=17, second=1, microsecond=0)
    world.clock.advance(cleanup - now)
    sweep(world)
    assert ecs.definitions == {}
