"""The stack that holds everything Punctual must not lose; it changes seldom and stands alone."""

from aws_cdk import Stack
from constructs import Construct

from infra.bucket import Bucket
from infra.stage import Stage
from infra.table import Table


class Data(Stack):
    """Four tables and a bucket, as the table in docs/architecture.md describes them."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): jobs, timers, runs and their outputs",
            termination_protection=stage.protected,
        )
        self.jobs = Table(self, "Jobs", stage=stage, expires=True, streams=True)
        # A timer is what an accepted job hangs on. Expiry would drop it in a long outage.
        self.timers = Table(self, "Timers", stage=stage, expires=False)
        self.runs = Table(self, "Runs", stage=stage, expires=True)
        self.control = Table(self, "Control", stage=stage, expires=True)
        self.outputs = Bucket(self, "Outputs", stage=stage)
