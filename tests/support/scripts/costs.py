"""Counts what runs of scripts cost on AWS, beside the functions that carry them out.

A job runs each five minutes. A script with a timeout of up to 25 s is waited for. The calls of a
longer one are those of the runner's protocol, made through the API.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import requests

from bench.cost.accounts import priced_lines, subtract_units
from bench.cost.meter import Unit
from bench.cost.prices import prices
from punctual.domain.leases import RENEWAL_INTERVAL
from punctual.domain.timestamps import format_time
from tests.support.claims.deployed import OutsideExecutor
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.latency import Latency
from tests.support.deployed.scenes import (
    Counted,
    idle_units,
    open_api,
    spent_in,
    submit_job,
    without_watermark,
)
from tests.support.deployed.world import MINUTE, SECOND, World, a_world

RUN_MINUTES = 5  # between two runs
COUNTED_RUNS = 2
RUNNER_SECONDS = 0.3  # to start a process for the script, and to end its group
SHORT_SECONDS, LONG_SECONDS = 1, 60
LINE = "a line of a log\n"
SMALL_OUTPUT = LINE * 128  # 2 KB
LARGE_OUTPUT = LINE * 65_536  # 1 MB
LOG_PART = 512 * 1024  # the most that one call by claim logs
CONTENT = b"echo 'from an artifact'"
SCRIPT = {"type": "script", "runtime": "bash", "code": "sleep 1"}
RUNNER = "runner"  # the role of calls that no function of ours makes


class ScriptRun(NamedTuple):
    """A run: its time, what it prints, and fields of its task."""

    label: str
    seconds: float
    printed: str = ""
    timeout_seconds: int = 20
    task: Mapping[str, Any] = {}


SCRIPT_RUNS = {
    "short": ScriptRun("1 s", SHORT_SECONDS),
    "short print": ScriptRun("1 s", SHORT_SECONDS, SMALL_OUTPUT),
    "short large": ScriptRun("waited for, 1 MB of output", SHORT_SECONDS, LARGE_OUTPUT),
    "long": ScriptRun("60 s", LONG_SECONDS, timeout_seconds=300),
    "long print": ScriptRun("60 s", LONG_SECONDS, SMALL_OUTPUT, 300),
    "long large": ScriptRun("handed over, 1 MB of output", LONG_SECONDS, LARGE_OUTPUT, 300),
    "artifact": ScriptRun("with an artifact", LONG_SECONDS, timeout_seconds=300),
    "secret": ScriptRun(
        "with a secret", SHORT_SECONDS, task={"env": {"TOKEN": "{{secret:token}}"}}
    ),
}


class RunCounter:
    """Counts the runs of one job after the other in a deployment."""

    def __init__(self, world: World) -> None:
        # This round runs each five minutes and is counted separately.
        world.clocks = [clock for clock in world.clocks if clock.short != "dead-letters"]
        world.latency = Latency(slow=("poller",))
        self.world = world
        self.api: Gateway = open_api(world)
        world.run((RUN_MINUTES - 1) * MINUTE)
        self._idle = idle_units(world, 2 * RUN_MINUTES)

    def count(self, label: str, play: Callable[[], None], **document: Any) -> Counted:
        """Return the units of one run. The first run warms the caches, and is not counted.

        `play` carries out the run, from two seconds after it is due.
        """
        world = self.world
        job = submit_job(
            self.api, schedule_type="CRON", cron_expression=f"*/{RUN_MINUTES} * * * *", **document
        )
        self._run_once(play)
        began, ended = len(world.meter.calls), len(world.ended())
        for _ in range(COUNTED_RUNS):
            self._run_once(play)
        calls = world.meter.calls[began:]
        assert (len(world.ended()) - ended, world.failures) == (COUNTED_RUNS, [])
        units = subtract_units(spent_in(world, calls), self._idle, COUNTED_RUNS / 2)
        assert self.api.call("DELETE", f"/jobs/{job}").status == 200
        world.run(RUN_MINUTES * MINUTE)
        return Counted(label, priced_lines(without_watermark(units), COUNTED_RUNS, prices()), {})

    def _run_once(self, play: Callable[[], None]) -> None:
        """Pass the time from a minute before the run to a minute before the next one."""
        world = self.world
        end = world.clock() + RUN_MINUTES * MINUTE
        world.run(MINUTE + 2 * SECOND)
        play()
        assert world.clock() < end
        world.run(end - world.clock())


class _Runner:
    """Makes the calls of a runner that an executor handed its script over to."""

    def __init__(self, world: World, api: Gateway, run: ScriptRun) -> None:
        self._world = world
        self._outside = OutsideExecutor(world, api)
        self._run = run

    def play(self) -> None:
        if self._run.timeout_seconds <= 25:
            return
        event = self._world.script_events.pop()
        held = {"claim": event["claim"], "runner_id": "r"}
        self._download(event)
        began_at = self._world.clock()
        self._renew({**held, "started_at": format_time(began_at)})
        renewals = int(self._run.seconds / RENEWAL_INTERVAL.total_seconds()) - 1
        parts = self._log_parts(renewals)
        for part in range(renewals):
            self._world.run(RENEWAL_INTERVAL)
            offset = sum(map(len, parts[:part]))
            self._renew({**held, "log": parts[part], "log_offset": offset})
        self._world.run(began_at + timedelta(seconds=self._run.seconds) - self._world.clock())
        end = {**held, "status": "SUCCESS", "exit_code": 0, **self._output(event["claim"])}
        assert self._outside.finish(end) == ["OK"]

    def _renew(self, fields: Mapping[str, Any]) -> None:
        assert self._outside.renew({name: value for name, value in fields.items() if value}) == [
            "OK"
        ]

    def _log_parts(self, renewals: int) -> list[str]:
        """Return the log of each renewal. A script that prints little prints all the time."""
        printed = self._run.printed
        size = LOG_PART if len(printed) > LOG_PART else -(-len(printed) // renewals)
        return [printed[size * part : size * (part + 1)] for part in range(renewals)]

    def _output(self, claim: str) -> dict[str, str]:
        printed = self._run.printed
        if len(printed) <= LOG_PART / 2:
            return {"output_text": printed} if printed else {}
        name = self._outside.upload(claim, printed.encode(), "text/plain")
        self._world.meter.add_billed_item(RUNNER, Unit.PUT, "outputs: PutObject")
        return {"output_upload": name}

    def _download(self, event: Mapping[str, Any]) -> None:
        artifact = event["task"].get("artifact")
        if artifact is not None:
            assert requests.get(artifact["url"], timeout=5).content == CONTENT
            self._world.meter.add_billed_item(RUNNER, Unit.GET, "artifacts: GetObject")


@cache
def script_run_costs() -> Mapping[str, Counted]:
    """Return the units of each kind of run, without the function of the script."""
    with a_world() as world:
        counter = RunCounter(world)
        world.session.client("ssm").put_parameter(
            Name="/punctual/dev/secrets/default/token", Value="hush", Type="SecureString"
        )
        artifact_id = _store(counter.api)
        return {
            name: _count_script(counter, name, run, artifact_id)
            for name, run in SCRIPT_RUNS.items()
        }


def _count_script(counter: RunCounter, name: str, run: ScriptRun, artifact_id: str) -> Counted:
    world = counter.world
    printed = b64encode(run.printed.encode()).decode()

    def run_script(_event: Any) -> dict[str, Any]:
        world.actors.pause(run.seconds + RUNNER_SECONDS)
        return {"output": printed, "log": printed, "exit_code": 0}

    world.run_script = run_script
    task = {**SCRIPT, **run.task}
    if name == "artifact":
        task = {"type": "script", "runtime": "bash", "artifact_id": artifact_id}
    return counter.count(
        run.label,
        _Runner(world, counter.api, run).play,
        task=task,
        timeout_seconds=run.timeout_seconds,
    )


def _store(api: Gateway) -> str:
    fields = {"sha256": sha256(CONTENT).hexdigest(), "size": len(CONTENT), "name": "main.sh"}
    created = api.post("/artifacts", fields).json
    headers = created["upload_headers"]
    requests.put(created["upload_url"], data=CONTENT, headers=headers, timeout=5).raise_for_status()
    return str(created["artifact_id"])
