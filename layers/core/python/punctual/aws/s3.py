"""Blobs as S3 objects. Each key contains its tenant."""

from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, RetryPolicy, call_aws, error_code
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.engine.ports.artifact_rows import BlobPage, StoredBlob
from punctual.engine.ports.blobs import Blob, Upload

MAX_S3_DELETE_KEYS = 1_000
S3_LIST_PAGE_SIZE = 1_000  # objects in a page; the maximum of S3
BLOB_LINK_SECONDS = 300
UPLOAD_LINK_SECONDS = 900
UNKNOWN_CONTENT_TYPE = "application/octet-stream"
MAX_CONTENT_TYPE_CHARACTERS = 255
MISSING_BLOB_CODES = frozenset({"NoSuchKey", "404"})
RANGE_PAST_END_CODE = "InvalidRange"


class S3Blobs:
    def __init__(
        self, client: Client, bucket: str, retry_policy: RetryPolicy, pool: ThreadPool
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._retry_policy = retry_policy
        self._pool = pool

    def put(self, name: str, data: bytes, content_type: str) -> None:
        type_argument = _content_type_argument("ContentType", content_type)
        call_aws(
            "storing a blob",
            lambda: self._client().put_object(
                Bucket=self._bucket, Key=name, Body=data, **type_argument
            ),
        )

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[Unavailable | None]:
        """Put several objects in parallel, because one call of S3 stores one object."""
        return self._pool.map(self._put, blobs)

    def _put(self, blob: Blob) -> Unavailable | None:
        try:
            self.put(*blob)
        except Unavailable as error:
            return error
        return None

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the bytes of the range, perhaps none. Return None if the object is absent."""
        if end is not None and end <= start:
            # S3 has no empty range: read one byte to see whether the object exists.
            return None if self._read(name, {"Range": "bytes=0-0"}) is None else b""
        range_argument = {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        return self._read(name, range_argument if start or end is not None else {})

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]:
        return self._pool.map(self.get, names)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. A missing object is not an error. Failed deletes are retried."""
        for chunk in chunked(names, MAX_S3_DELETE_KEYS):
            self._delete_chunk(chunk)

    def list_page(self, prefix: str, after: str | None) -> BlobPage:
        """Return a page of the objects with this key prefix, sorted by key."""
        start_argument = {} if after is None else {"StartAfter": after}
        response = call_aws(
            "listing blobs",
            lambda: self._client().list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, MaxKeys=S3_LIST_PAGE_SIZE, **start_argument
            ),
        )
        blobs = [
            StoredBlob(entry["Key"], entry["LastModified"])
            for entry in response.get("Contents", [])
        ]
        return BlobPage(blobs, blobs[-1].name if blobs and response["IsTruncated"] else None)

    def link(self, name: str, content_type: str, seconds: int = BLOB_LINK_SECONDS) -> str | None:
        type_argument = _content_type_argument("ResponseContentType", content_type)
        link: str = call_aws(
            "signing a link",
            lambda: self._client().generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": name, **type_argument},
                ExpiresIn=seconds,
            ),
        )
        return link

    def upload_link(self, name: str, size: int, content_type: str, sha256: str = "") -> Upload:
        """Return a presigned PUT. The signature covers each header, so S3 rejects other ones."""
        type_argument = _content_type_argument("ContentType", content_type)
        headers = {
            "Content-Length": str(size),
            "Content-Type": type_argument.get("ContentType", UNKNOWN_CONTENT_TYPE),
            "If-None-Match": "*",
        }
        parameters = {
            "ContentLength": size,
            "ContentType": headers["Content-Type"],
            "IfNoneMatch": headers["If-None-Match"],
        }
        if sha256:
            checksum = b64encode(bytes.fromhex(sha256)).decode()
            headers["x-amz-checksum-sha256"] = parameters["ChecksumSHA256"] = checksum
        url: str = call_aws(
            "signing an upload",
            lambda: self._client().generate_presigned_url(
                "put_object",
                Params={"Bucket": self._bucket, "Key": name, **parameters},
                ExpiresIn=UPLOAD_LINK_SECONDS,
            ),
        )
        return Upload(url, headers)

    def list_names(self, folder: str) -> Sequence[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            blobs, cursor = self.list_page(folder, cursor)
            names += [blob.name for blob in blobs]
            if cursor is None:
                return names

    def _read(self, name: str, range_argument: dict[str, Any]) -> bytes | None:
        def get_object() -> bytes | None:
            try:
                response = self._client().get_object(
                    Bucket=self._bucket, Key=name, **range_argument
                )
            except ClientError as error:
                code = error_code(error)
                if code in MISSING_BLOB_CODES:
                    return None
                if code == RANGE_PAST_END_CODE:
                    return b""
                raise
            data: bytes = response["Body"].read()
            return data

        return call_aws("reading a blob", get_object)

    def _delete_chunk(self, names: Sequence[str]) -> None:
        remaining = list(names)
        for attempt in range(self._retry_policy.tries):
            objects = {"Objects": [{"Key": name} for name in remaining], "Quiet": True}
            response = call_aws("deleting blobs", partial(self._delete_objects, objects))
            remaining = [error["Key"] for error in response.get("Errors", [])]
            if not remaining:
                return
            self._retry_policy.wait(attempt, "delete")
        raise Unavailable(f"S3 did not delete {len(remaining)} blobs.")

    def _delete_objects(self, objects: dict[str, Any]) -> Any:
        return self._client().delete_objects(Bucket=self._bucket, Delete=objects)


def _content_type_argument(parameter: str, content_type: str) -> dict[str, str]:
    """Return the content type as a parameter of S3, or nothing if S3 would reject it."""
    is_valid = content_type.isascii() and content_type.isprintable()
    return (
        {parameter: content_type}
        if is_valid and 0 < len(content_type) <= MAX_CONTENT_TYPE_CHARACTERS
        else {}
    )
