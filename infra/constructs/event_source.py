"""Event sources of a function: a queue, or the stream of a table."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.function import Function
from infra.nag_suppressions import acknowledge

PARTIAL = ["ReportBatchItemFailures"]


class QueueSource(Construct):
    """Batches of a queue. Only the failed messages of a batch come back."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        queue: sqs.Queue,
        batch: int,
        at_most: int | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.mapping = lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            function_name=function.function.function_ref.function_arn,
            event_source_arn=queue.queue_arn,
            batch_size=batch,
            function_response_types=PARTIAL,
            # At most the executions of the function: a throttled message counts as received.
            scaling_config=None
            if at_most is None
            else lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=at_most),
        )
        acknowledge(
            self,
            "Lambda knows such a destination for streams only; a queue has its dead-letter queue.",
            "Serverless-LambdaEventSourceMappingDestination",
        )


class StreamSource(Construct):
    """Changes of a table, in order for each row.

    A new mapping begins at the oldest change in the stream. So after a deployment no change is
    missed, and some changes come twice without harm.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        stream: str,
        failed: sqs.Queue,
        batch: int,
        window: Duration,
        at_a_time: int,
        only: Sequence[Mapping[str, Any]],
        retries: int,
        oldest: Duration,
    ) -> None:
        super().__init__(scope, construct_id)
        mapping = lambda_.CfnEventSourceMapping
        self.mapping = mapping(
            self,
            "Mapping",
            function_name=function.function.function_ref.function_arn,
            event_source_arn=stream,
            starting_position="TRIM_HORIZON",
            batch_size=batch,
            maximum_batching_window_in_seconds=window.to_seconds(),
            parallelization_factor=at_a_time,
            filter_criteria=mapping.FilterCriteriaProperty(
                filters=[mapping.FilterProperty(pattern=json.dumps(one)) for one in only]
            ),
            bisect_batch_on_function_error=True,
            maximum_retry_attempts=retries,
            maximum_record_age_in_seconds=oldest.to_seconds(),
            function_response_types=PARTIAL,
            destination_config=mapping.DestinationConfigProperty(
                on_failure=mapping.OnFailureProperty(destination=failed.queue_arn)
            ),
        )
