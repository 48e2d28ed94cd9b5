"""The bucket of outputs and large payloads, and the bucket of its access log."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.config.stage import Stage
from punctual.aws.dynamodb.keys import RUN_OBJECT_PREFIXES

RESTORE_RETENTION = Duration.days(35)
"""The range of DynamoDB's point-in-time recovery, so that both can be restored to one time."""


class Bucket(Construct):
    """A private, encrypted bucket, reached over TLS only. Outputs expire by retention.

    A payload is deleted with its job, or by the reconciler.
    """

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage) -> None:
        super().__init__(scope, construct_id)
        self.bucket = self._bucket(
            "Bucket",
            removal=stage.removal_policy,
            access_log=self._access_log(stage),
            versioned=True,
            rules=[
                *(
                    s3.LifecycleRule(
                        id=f"{prefix.rstrip('/')}-expire",
                        prefix=prefix,
                        expiration=stage.retention,
                    )
                    for prefix in RUN_OBJECT_PREFIXES
                ),
                s3.LifecycleRule(
                    id="deleted-stays-restorable",
                    noncurrent_version_expiration=RESTORE_RETENTION,
                    expired_object_delete_marker=True,
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                ),
            ],
        )

    def _access_log(self, stage: Stage) -> s3.Bucket:
        return self._bucket(
            "AccessLog",
            removal=stage.removal_policy,
            rules=[
                s3.LifecycleRule(
                    id="access-log-expires",
                    expiration=Duration.days(90),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )

    def _bucket(
        self,
        construct_id: str,
        *,
        removal: RemovalPolicy,
        rules: list[s3.LifecycleRule],
        access_log: s3.Bucket | None = None,
        versioned: bool = False,
    ) -> s3.Bucket:
        return s3.Bucket(
            self,
            construct_id,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=rules,
            removal_policy=removal,
            server_access_logs_bucket=access_log,
            versioned=versioned,
        )
