"""The runtime of a deployed function.

Its parts are built on first use and kept while it is warm.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from punctual.aws.deadline import Deadline
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.operator_settings import DispatchSwitch
from punctual.aws.ports import (
    AwsPorts,
    Clients,
    aws_dynamo,
    aws_ports,
    monotonic,
    real_clock,
    sleep,
)
from punctual.engine.ports.clock import Clock, NewId
from punctual.identity import new_id
from punctual.lambdas.telemetry import PowertoolsTelemetry, Telemetry, of_engine
from punctual.settings import Settings

MEMORY = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"  # set by Lambda
A_CORE = 1769  # MB for one whole processor; Lambda gives a smaller share for less memory
LEAST = 256

if TYPE_CHECKING:  # imported on first use, since a function that only reads needs none of these
    from punctual.engine.changes.apply import ChangeApplier
    from punctual.engine.dispatch.evaluator import Evaluator
    from punctual.engine.execution.executor import Executor


class Runtime:
    """Holds the clients, ports and engine parts of a process.

    Tests pass in clock, ids, clients and telemetry. `name` is a unique id of this environment, used
    as lease owner and executor id.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Telemetry,
        clients: Clients | None = None,
        clock: Clock = real_clock,
        steady: Callable[[], float] = monotonic,
        make_id: NewId | None = None,
        pause: Callable[[float], None] = sleep,
        share: float = LEAST / A_CORE,
        **wired: Any,
    ) -> None:
        self.settings = settings
        self.tell = tell
        self.clients = clients or Clients()
        self.clock = clock
        self.steady = steady
        self.new_id = make_id or new_id(clock)
        self.name = self.new_id()
        self.pause = pause
        self.share = share
        self._wired = wired

    @classmethod
    def from_env(cls, service: str, env: Mapping[str, str] = os.environ) -> "Runtime":
        settings = Settings.from_env(env)
        tell = PowertoolsTelemetry(service, settings.stage, settings.metrics)
        return cls(settings, tell, share=share_of(env))

    @cached_property
    def ports(self) -> AwsPorts:
        return aws_ports(self.settings, self.clock, self.clients, gate=self.gate, **self._wired)

    @cached_property
    def deadline(self) -> Deadline:
        """Return the deadline for a function with a waiting client.

        It bounds every later AWS call.
        """
        made = Deadline(self.steady)
        self.clients.watched(made.watch)
        return made

    @cached_property
    def gate(self) -> DispatchSwitch:
        """Return the dispatch switch, shared by the whole process."""
        return DispatchSwitch(self.dynamo, self.settings.control_table, self.clock)

    @cached_property
    def dynamo(self) -> DynamoClient:
        """Return the client for rows that belong to no port."""
        some = {name: self._wired[name] for name in ("crew", "patience") if name in self._wired}
        return aws_dynamo(self.clients, **some)

    @cached_property
    def steps(self) -> "ChangeApplier":
        from punctual.engine.changes.apply import ChangeApplier

        return ChangeApplier(
            heads=self.ports.heads,
            timers=self.ports.timers,
            buckets=self.ports.buckets,
            history=self.ports.history,
            messages=self.ports.messages,
            notices=self.ports.notices,
            wake=self.ports.wake,
            clock=self.clock,
            monotonic=self.steady,
            log=of_engine(self.tell),
        )

    @cached_property
    def looker(self) -> "Evaluator":
        from punctual.engine.dispatch.evaluator import Evaluator

        return Evaluator(self.steps, self.new_id)

    @cached_property
    def executor(self) -> "Executor":
        from punctual.engine.execution.executor import Executor

        return Executor(
            heads=self.ports.heads,
            blobs=self.ports.blobs,
            wake=self.ports.wake,
            steps=self.steps,
            new_id=self.new_id,
            executor_id=self.name,
        )


def share_of(env: Mapping[str, str]) -> float:
    """Return the share of a processor that the function has.

    >>> share_of({MEMORY: "1769"}), share_of({MEMORY: "3538"})
    (1.0, 1.0)
    """
    return min(1.0, int(env.get(MEMORY, LEAST)) / A_CORE)
