"""Direct access to the functions of a deployment, for tests that call one of them at a time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from punctual.aws.dynamodb import keys
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import JobView
from punctual.lambdas.runtime import Runtime
from punctual.settings import Settings
from tests.support.aws.job_lists import JobLists
from tests.support.aws.moto_adapter import adapter
from tests.support.deployed.drivers.telemetry import RecordedTelemetry
from tests.support.deployed.world import World
from tests.support.names.own_names import own_name
from tests.support.ports import job_commands, job_queries

# Tasks may name any target, and each queue has four executors.
ANY = '[{"*":["*"]},{"*":["*"]}]'
PLACES = 4


class Direct:
    """Calls functions of a world without its event sources, with their logs in `told`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        self.telemetry = RecordedTelemetry()
        deployed_settings = Settings.from_env(
            world.deployed.functions[world.name("job-service")].env
        )
        places = dict.fromkeys(deployed_settings.queues, PLACES)
        settings = replace(deployed_settings, reach=ANY, places=places, metrics=True)
        self.aws = adapter(world.clients, settings, world.clock)
        self.job_lists = JobLists(world.bare, settings, world.clock)
        self.restart()

    def restart(self) -> None:
        """Start new environments, with empty caches."""
        self.runtime = self.new_runtime()
        self.search = job_queries(self.runtime.ports, self.clock, cast(Any, None))
        self.jobs = job_commands(
            self.runtime.ports, self.runtime.applier, self.search, self.clock, self.world.new_id
        )

    def new_runtime(self, pause: Callable[[float], None] | None = None) -> Runtime:
        """Return the runtime of a new environment. It retries a failed call once."""
        return Runtime(
            self.aws.settings,
            self.telemetry,
            clients=self.aws.clients,
            clock=self.clock,
            steady=self.clock.monotonic,
            make_id=self.world.new_id,
            pause=pause or (lambda _: None),
            pool=ThreadPool(1),
            retry_policy=RetryPolicy(lambda _: None, seed="test", tries=2),
        )

    def submit(self, *, tenant: str = "acme", **document: Any) -> JobKey:
        (view,) = self.jobs.submit(tenant, "ada", [Submission({"name": own_name("n"), **document})])
        assert isinstance(view, JobView), view
        return JobKey(view.state.tenant, view.state.job_id)

    def set_attribute(self, key: JobKey, name: str, value: dict[str, str]) -> None:
        """Change one attribute of a job's state by hand, with the version of its row."""
        self.world.bare.update_item(
            TableName=self.aws.settings.jobs_table,
            Key=keys.state_key(*key).item(),
            UpdateExpression="SET #name = :value ADD #version :one",
            ConditionExpression="attribute_exists(#state)",
            ExpressionAttributeNames={
                "#name": name,
                "#state": keys.STATUS_ATTR,
                "#version": keys.VERSION_ATTR,
            },
            ExpressionAttributeValues={":value": value, ":one": {"N": "1"}},
        )
