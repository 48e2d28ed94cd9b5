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

PARTIAL_BATCH_RESPONSE = ["ReportBatchItemFailures"]


class QueueSource(Construct):
    """Batches of a queue. Only the failed messages of a batch are delivered again."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        queue: sqs.Queue,
        batch_size: int,
        max_concurrency: int | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.mapping = lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            function_name=function.function.function_ref.function_arn,
            event_source_arn=queue.queue_arn,
            batch_size=batch_size,
            function_response_types=PARTIAL_BATCH_RESPONSE,
            # At most the executions of the function: a throttled message counts as received.
            scaling_config=None
            if max_concurrency is None
            else lambda_.CfnEventSourceMapping.ScalingConfigProperty(
                maximum_concurrency=max_concurrency
            ),
        )
        acknowledge(
            self,
            "Lambda has such a destination for streams only. A queue has its dead-letter queue.",
            "Serverless-LambdaEventSourceMappingDestination",
        )


class StreamSource(Construct):
    """Changes of a table, in order for each row.

    A new mapping begins at the oldest change in the stream. So after a deployment no change is
    missed, and some changes are processed twice without harm.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        stream_arn: str,
        failure_queue: sqs.Queue,
        batch_size: int,
        batching_window: Duration,
        parallelization_factor: int,
        filter_patterns: Sequence[Mapping[str, Any]],
        retries: int,
        max_age: Duration,
    ) -> None:
        super().__init__(scope, construct_id)
        mapping = lambda_.CfnEventSourceMapping
        self.mapping = mapping(
            self,
            "Mapping",
            function_name=function.function.function_ref.function_arn,
            event_source_arn=stream_arn,
            starting_position="TRIM_HORIZON",
            batch_size=batch_size,
            maximum_batching_window_in_seconds=batching_window.to_seconds(),
            parallelization_factor=parallelization_factor,
            filter_criteria=mapping.FilterCriteriaProperty(
                filters=[
                    mapping.FilterProperty(pattern=json.dumps(pattern))
                    for pattern in filter_patterns
                ]
            ),
            bisect_batch_on_function_error=True,
            maximum_retry_attempts=retries,
            maximum_record_age_in_seconds=max_age.to_seconds(),
            function_response_types=PARTIAL_BATCH_RESPONSE,
            destination_config=mapping.DestinationConfigProperty(
                on_failure=mapping.OnFailureProperty(destination=failure_queue.queue_arn)
            ),
        )
