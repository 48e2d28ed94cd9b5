"""The runtime of a deployed function.

Its parts are built on first use and kept while it is warm.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.operator_settings import DispatchSwitch
from punctual.aws.ports import (
    AwsPorts,
    Clients,
    build_aws_ports,
    build_dynamo_client,
    monotonic,
    real_clock,
    sleep,
)
from punctual.aws.retries import Deadline
from punctual.engine.ports.clock import Clock, NewId
from punctual.identity import new_id
from punctual.lambdas.telemetry import PowertoolsTelemetry, Telemetry, engine_log
from punctual.settings import Settings

MEMORY_VARIABLE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"  # set by Lambda
MEMORY_MB_PER_CORE = (
    1769  # MB for one whole processor; Lambda gives a smaller share for less memory
)
MIN_FUNCTION_MEMORY_MB = 256

if TYPE_CHECKING:  # imported on first use, since a function that only reads needs none of these
    from punctual.auth.claim_tokens import ClaimTokens
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
        log: Telemetry,
        clients: Clients | None = None,
        clock: Clock = real_clock,
        steady: Callable[[], float] = monotonic,
        make_id: NewId | None = None,
        pause: Callable[[float], None] = sleep,
        cpu_share: float = MIN_FUNCTION_MEMORY_MB / MEMORY_MB_PER_CORE,
        **port_overrides: Any,
    ) -> None:
        self.settings = settings
        self.log = log
        self.clients = clients or Clients()
        self.clock = clock
        self.steady = steady
        self.new_id = make_id or new_id(clock)
        self.name = self.new_id()
        self.pause = pause
        self.cpu_share = cpu_share
        self._port_overrides = port_overrides

    @classmethod
    def from_env(cls, service: str, env: Mapping[str, str] = os.environ) -> "Runtime":
        settings = Settings.from_env(env)
        log = PowertoolsTelemetry(service, settings.stage, settings.metrics)
        return cls(settings, log, cpu_share=cpu_share_of(env))

    @cached_property
    def ports(self) -> AwsPorts:
        return build_aws_ports(
            self.settings,
            self.clock,
            self.clients,
            dispatch_switch=self.dispatch_switch,
            **self._port_overrides,
        )

    @cached_property
    def deadline(self) -> Deadline:
        """Return the deadline for a function with a waiting client.

        It bounds every later AWS call.
        """
        deadline = Deadline(self.steady)
        self.clients.add_observer(deadline.attach_to)
        return deadline

    @cached_property
    def dispatch_switch(self) -> DispatchSwitch:
        """Return the dispatch switch, shared by the whole process."""
        return DispatchSwitch(self.dynamo, self.settings.control_table, self.clock)

    @cached_property
    def dynamo(self) -> DynamoClient:
        """Return the client for rows that belong to no port."""
        overrides = {
            name: self._port_overrides[name]
            for name in ("pool", "retry_policy")
            if name in self._port_overrides
        }
        return build_dynamo_client(self.clients, **overrides)

    @cached_property
    def applier(self) -> "ChangeApplier":
        from punctual.engine.changes.apply import ChangeApplier

        return ChangeApplier(
            job_states=self.ports.job_states,
            timers=self.ports.timers,
            partitions=self.ports.partitions,
            history=self.ports.history,
            run_queue=self.ports.run_queue,
            notifications=self.ports.notifications,
            wakeups=self.ports.wakeups,
            clock=self.clock,
            steady=self.steady,
            log=engine_log(self.log),
        )

    @cached_property
    def evaluator(self) -> "Evaluator":
        from punctual.engine.dispatch.evaluator import Evaluator

        return Evaluator(self.applier, self.new_id)

    @cached_property
    def claim_tokens(self) -> "ClaimTokens":
        """Return the signer and reader of claims. It reads the token key at its first use."""
        from punctual.auth.claim_tokens import ClaimTokens
        from punctual.lambdas.token_service import read_token_key

        return ClaimTokens(lambda: read_token_key(self))

    @cached_property
    def api_address(self) -> str:
        """Return the address of the API, which the stack of the API stores as a parameter."""
        from punctual.aws.parameters import Parameter
        from punctual.lambdas.ssm_secrets import API_ADDRESS_PARAMETER

        name = self.settings.knobs + API_ADDRESS_PARAMETER
        return Parameter(lambda: self.clients.ssm, name).read()

    @cached_property
    def executor(self) -> "Executor":
        from punctual.engine.execution.executor import Executor

        return Executor(
            job_states=self.ports.job_states,
            blobs=self.ports.blobs,
            wakeups=self.ports.wakeups,
            applier=self.applier,
            new_id=self.new_id,
            executor_id=self.name,
            hands_over_scripts=True,
            function_memory_mb=self.settings.script_memory_mb,
        )


def cpu_share_of(env: Mapping[str, str]) -> float:
    """Return the share of a processor that the function has.

    >>> cpu_share_of({MEMORY_VARIABLE: "1769"}), cpu_share_of({MEMORY_VARIABLE: "3538"})
    (1.0, 1.0)
    """
    return min(1.0, int(env.get(MEMORY_VARIABLE, MIN_FUNCTION_MEMORY_MB)) / MEMORY_MB_PER_CORE)
