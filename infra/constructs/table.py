"""A DynamoDB table of Punctual: on demand, restorable to any second, string keys."""

from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.config.stage import Stage
from punctual.aws.dynamodb.keys import PK, SK, TTL


class Table(Construct):
    """Point-in-time recovery covers every table, so that all can be restored to one time."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        expires: bool,
        streams: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self.table = _restored_table(
            self, construct_id.lower(), stage, streams
        ) or self._create_table(stage, expires, streams)

    def _create_table(self, stage: Stage, expires: bool, streams: bool) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=PK, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=SK, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            # Keys owned by AWS: keys managed by AWS cost a KMS request for each cold partition.
            encryption=dynamodb.TableEncryption.DEFAULT,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=TTL if expires else None,
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if streams else None,
            deletion_protection=stage.protects("Data"),
            removal_policy=stage.removal_policy,
        )


def _restored_table(
    scope: Construct, name: str, stage: Stage, streams: bool
) -> dynamodb.ITable | None:
    """Return the restored table. It belongs to no stack: the restore configured it."""
    if stage.restored_tables is None:
        return None
    return dynamodb.Table.from_table_attributes(
        scope,
        "Table",
        table_name=stage.restored_tables.tables[name],
        table_stream_arn=stage.restored_tables.stream_arn if streams else None,
    )
