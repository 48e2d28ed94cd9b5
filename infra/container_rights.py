"""The rights to start and follow containers on Fargate, in a stage that has them."""

from collections.abc import Sequence

from infra.iam import (
    LOGS_PREFIX,
    OUTPUTS_PREFIX,
    DataArns,
    QueueArns,
    Right,
    change_job,
    control_rows,
    logging,
    read_blobs,
)
from punctual.aws.dynamodb.control.limits import QUOTA_ROW_KEY_PATTERN
from punctual.aws.ecs.containers import CONTAINERS_PARTITION
from punctual.aws.ecs.task_definitions import DEFINITIONS_PARTITION
from punctual.lambdas.containers.start_files import ENVIRONMENT_FILE, START_FILES


def start_containers(
    task_definitions: str, cluster: str, roles: Sequence[str], service: str
) -> list[Right]:
    """Return the rights to start containers: in one cluster, under two roles, and nothing else."""
    in_cluster = (("ecs:cluster", cluster),)
    return [
        Right(
            ("ecs:RunTask",),
            (task_definitions,),
            "each image and size has a definition of its own",
            equals=in_cluster,
        ),
        Right(("ecs:RegisterTaskDefinition",), ("*",), "AWS has no resource for a registration"),
        Right(("iam:PassRole",), tuple(roles), equals=(("iam:PassedToService", service),)),
    ]


def executor_of_containers(data: DataArns) -> list[Right]:
    """Return the rights on the rows of containers, and on what their starts read."""
    return [
        control_rows(data, CONTAINERS_PARTITION, "BatchWriteItem", "Query", "UpdateItem"),
        control_rows(data, DEFINITIONS_PARTITION, "BatchWriteItem", "PutItem", "UpdateItem"),
        control_rows(data, QUOTA_ROW_KEY_PATTERN, "PutItem"),
        read_blobs(data, OUTPUTS_PREFIX),  # a presigned link has the rights of its signer
        _delete_start_files(data),
    ]


def _delete_start_files(data: DataArns) -> Right:
    """Return the right to delete what a task of ECS read."""
    objects = (f"{data.bucket}/{OUTPUTS_PREFIX}*/{name}" for name in START_FILES)
    return Right(("s3:DeleteObject",), tuple(objects), "blobs are named by job")


def containers(
    data: DataArns, queues: QueueArns, tasks: str, cluster: str, log_group: str
) -> list[Right]:
    """Return the rights of the function that follows containers."""
    in_cluster = (("ecs:cluster", cluster),)
    return [
        *change_job(data, queues),
        control_rows(data, CONTAINERS_PARTITION, "BatchWriteItem", "Query", "UpdateItem"),
        control_rows(data, DEFINITIONS_PARTITION, "DeleteItem", "Query"),
        control_rows(data, QUOTA_ROW_KEY_PATTERN, "PutItem"),
        Right(("s3:PutObject",), data.objects(LOGS_PREFIX), "blobs are named by job"),
        _delete_start_files(data),
        Right(
            ("ecs:DescribeTasks", "ecs:StopTask"),
            (tasks,),
            "ECS names tasks, all in one cluster",
            equals=in_cluster,
        ),
        Right(
            ("ecs:ListTasks",),
            ("*",),
            "the condition names the cluster; AWS has no resource for a list of tasks",
            equals=in_cluster,
        ),
        Right(
            ("ecs:DeregisterTaskDefinition",), ("*",), "AWS has no resource for a deregistration"
        ),
        Right(("logs:GetLogEvents",), (log_group,)),
    ]


def pull_images(data: DataArns, repositories: str, log_group: str, secrets: str) -> list[Right]:
    """Return the rights of ECS while it starts a task."""
    return [
        Right(
            ("s3:GetObject",),
            (f"{data.bucket}/{OUTPUTS_PREFIX}*/{ENVIRONMENT_FILE}",),
            "blobs are named by job",
        ),
        Right(("s3:GetBucketLocation",), (data.bucket,)),
        Right(("ecr:GetAuthorizationToken",), ("*",), "AWS has no resource for the login"),
        Right(
            (
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:GetDownloadUrlForLayer",
            ),
            (repositories,),
            "jobs name images; the account's repositories may deny the role",
        ),
        logging(log_group),
        Right(
            ("ssm:GetParameters",),
            (secrets,),
            "Punctual writes only the secrets of the job's own tenant into its definition",
        ),
    ]
