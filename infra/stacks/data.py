"""The stack with all durable data. It depends on no other stack."""

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from infra import iam
from infra.config.stage import Stage
from infra.constructs.bucket import Bucket
from infra.constructs.console_links import link_outputs
from infra.constructs.table import Table


class Data(Stack):
    """Six tables, a bucket and the event bus."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): jobs, timers, runs and their outputs",
            termination_protection=stage.protects("Data"),
        )
        self.jobs = Table(self, "Jobs", stage=stage, expires=True, streams=True)
        # No expiry: a long outage must not lose the timer of an accepted job.
        self.timers = Table(self, "Timers", stage=stage, expires=False)
        self.runs = Table(self, "Runs", stage=stage, expires=True)
        self.control = Table(self, "Control", stage=stage, expires=True)
        # A separate table, so that no function may delete or change its rows.
        self.audit = Table(self, "Audit", stage=stage, expires=True)
        self.lists = Table(self, "Lists", stage=stage, expires=True)
        self.outputs = Bucket(self, "Outputs", stage=stage)
        self.bus = events.EventBus(
            self,
            "Bus",
            event_bus_name=stage.prefix,
            description=f"Events of `event` tasks, and changes of jobs of Punctual ({stage.name})",
        )
        CfnOutput(
            self,
            "EventBus",
            value=self.bus.event_bus_name,
            description="The event bus for your rules",
        )
        link_outputs(self, self.outputs.bucket.bucket_name)

    @property
    def arns(self) -> iam.DataArns:
        stream = self.jobs.table.table_stream_arn
        assert stream is not None
        return iam.DataArns(
            jobs=self.jobs.table.table_arn,
            timers=self.timers.table.table_arn,
            runs=self.runs.table.table_arn,
            control=self.control.table.table_arn,
            audit=self.audit.table.table_arn,
            lists=self.lists.table.table_arn,
            stream=stream,
            bucket=self.outputs.bucket.bucket_arn,
            bus=self.bus.event_bus_arn,
        )
