"""Rules of EventBridge that start a function by time."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.config.stage import Stage
from infra.constructs.function import Function
from infra.nag_suppressions import acknowledge


class ScheduleRule(Construct):
    """A rule with one target. EventBridge drops an event that is too old."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        name: str,
        description: str,
        schedule: events.Schedule,
        function: Function,
        retries: int,
        max_event_age: Duration,
        dropped_events_reason: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.rule = events.Rule(
            self,
            "Rule",
            rule_name=stage.resource_name(name),
            description=description,
            schedule=schedule,
            targets=[
                targets.LambdaFunction(
                    function.function, retry_attempts=retries, max_event_age=max_event_age
                )
            ],
        )
        acknowledge(self.rule, dropped_events_reason, "Serverless-EventBusDLQ")
