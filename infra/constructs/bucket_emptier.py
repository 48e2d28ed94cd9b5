"""Empty the buckets of a stage before it is destroyed: S3 deletes only empty buckets."""

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError


def empty_buckets(session: Any, stack: str) -> int:
    """Delete all objects of the stack's buckets and return their number."""
    s3 = session.client("s3")
    return sum(_empty_bucket(s3, bucket) for bucket in _list_buckets(session, stack))


def _list_buckets(session: Any, stack: str) -> list[str]:
    pages = session.client("cloudformation").get_paginator("list_stack_resources")
    try:
        return [
            resource["PhysicalResourceId"]
            for page in pages.paginate(StackName=stack)
            for resource in page["StackResourceSummaries"]
            if resource["ResourceType"] == "AWS::S3::Bucket"
            and resource["ResourceStatus"] != "DELETE_COMPLETE"
        ]
    except ClientError as error:
        if "does not exist" in str(error):
            return []
        raise


def _empty_bucket(s3: Any, bucket: str) -> int:
    removed = 0
    for versions in _list_versions(s3, bucket):
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": versions, "Quiet": True})
        removed += len(versions) - len(answer.get("Errors", []))
    return removed


def _list_versions(s3: Any, bucket: str) -> Iterator[list[dict[str, str]]]:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        versions = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if versions:
            yield [
                {"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions
            ]
