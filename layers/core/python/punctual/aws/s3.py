"""Blobs as S3 objects. Each key contains its tenant."""

from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, RetryPolicy, call_aws, error_code
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.engine.ports.blobs import Blob, BlobVersion, Upload, VersionedPut
from punctual.engine.ports.tenants.artifact_rows import BlobPage, StoredBlob

MAX_S3_DELETE_KEYS = 1_000
S3_LIST_PAGE_SIZE = 1_000  # objects in a page; the maximum of S3
BLOB_LINK_SECONDS = 300
UPLOAD_LINK_SECONDS = 900
UNKNOWN_CONTENT_TYPE = "application/octet-stream"
MAX_CONTENT_TYPE_CHARACTERS = 255
MISSING_BLOB_CODES = frozenset({"NoSuchKey", "404"})
# Answers to a conditional put that met another object, or another put at the same time.
LOST_PUT_CODES = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
TOKEN_METADATA = "fencing-token"  # of the claim that stored an output or a log
MAX_FENCED_PUTS = 4
_ONLY_IF_ABSENT = {"IfNoneMatch": "*"}
RANGE_PAST_END_CODE = "InvalidRange"


class _StoredObject(NamedTuple):
    """The version of an object, and the fencing token of the claim that stored it."""

    version: str
    token: int

    @property
    def condition(self) -> dict[str, str]:
        return {"IfMatch": self.version}


class S3Blobs:
    def __init__(
        self, client: Client, bucket: str, retry_policy: RetryPolicy, pool: ThreadPool
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._retry_policy = retry_policy
        self._pool = pool

    def put(self, name: str, data: bytes, content_type: str, token: int = 0) -> None:
        blob = Blob(name, data, content_type, token)
        if not token:
            self._put_object(blob, {})
            return
        condition = _ONLY_IF_ABSENT
        for _ in range(MAX_FENCED_PUTS):
            if self._put_object(blob, condition):
                return
            stored = self._find(name)
            if stored is not None and stored.token > token:
                raise Unavailable("A later claim has stored this blob.")
            condition = _ONLY_IF_ABSENT if stored is None else stored.condition
        raise Unavailable("Other calls store this blob at the same time: try again.")

    def _put_object(self, blob: Blob, condition: dict[str, str]) -> bool:
        """Return False if the condition failed."""
        arguments = {
            **_content_type_argument("ContentType", blob.content_type),
            **_token_argument(blob.token),
            **condition,
        }

        def put_object() -> bool:
            try:
                self._client().put_object(
                    Bucket=self._bucket, Key=blob.name, Body=blob.data, **arguments
                )
            except ClientError as error:
                if condition and error_code(error) in LOST_PUT_CODES | MISSING_BLOB_CODES:
                    return False
                raise
            return True

        return call_aws("storing a blob", put_object)

    def _find(self, name: str) -> _StoredObject | None:
        def head_object() -> _StoredObject | None:
            try:
                response = self._client().head_object(Bucket=self._bucket, Key=name)
            except ClientError as error:
                if error_code(error) in MISSING_BLOB_CODES:
                    return None
                raise
            token = response.get("Metadata", {}).get(TOKEN_METADATA, "")
            return _StoredObject(response["ETag"], int(token) if token.isdecimal() else 0)

        return call_aws("reading a blob", head_object)

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
        stored = self._read(name, range_argument if start or end is not None else {})
        return None if stored is None else stored.data

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]:
        return self._pool.map(self.get, names)

    def get_versions(self, names: Sequence[str]) -> Sequence[BlobVersion | None]:
        return self._pool.map(lambda name: self._read(name, {}), names)

    def put_versions(self, puts: Sequence[VersionedPut]) -> Sequence[bool | Unavailable]:
        return self._pool.map(self._put_version, puts)

    def _put_version(self, put: VersionedPut) -> bool | Unavailable:
        try:
            condition = {"IfMatch": put.version} if put.version else _ONLY_IF_ABSENT
            return self._put_object(put.blob, condition)
        except Unavailable as error:
            return error

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

    def upload_link(
        self, name: str, size: int, content_type: str, sha256: str = "", token: int = 0
    ) -> Upload:
        """Return a presigned PUT. The signature covers each header, so S3 rejects other ones.

        It replaces only the object of an earlier claim, by its version. So no later object is lost.
        """
        type_argument = _content_type_argument("ContentType", content_type)
        headers = {
            "Content-Length": str(size),
            "Content-Type": type_argument.get("ContentType", UNKNOWN_CONTENT_TYPE),
        }
        parameters: dict[str, Any] = {
            "ContentLength": size,
            "ContentType": headers["Content-Type"],
            **_token_argument(token),
        }
        stored = self._find(name) if token else None
        if stored is not None and stored.token < token:
            headers["If-Match"] = parameters["IfMatch"] = stored.version
        else:
            headers["If-None-Match"] = parameters["IfNoneMatch"] = "*"
        if token:
            headers[f"x-amz-meta-{TOKEN_METADATA}"] = str(token)
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

    def accept_upload(self, name: str, token: int) -> bool:
        stored = self._find(name)
        return stored is not None and stored.token == token

    def list_names(self, folder: str) -> Sequence[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            blobs, cursor = self.list_page(folder, cursor)
            names += [blob.name for blob in blobs]
            if cursor is None:
                return names

    def _read(self, name: str, range_argument: dict[str, Any]) -> BlobVersion | None:
        def get_object() -> BlobVersion | None:
            try:
                response = self._client().get_object(
                    Bucket=self._bucket, Key=name, **range_argument
                )
            except ClientError as error:
                code = error_code(error)
                if code in MISSING_BLOB_CODES:
                    return None
                if code == RANGE_PAST_END_CODE:
                    return BlobVersion(b"", "")
                raise
            return BlobVersion(response["Body"].read(), response["ETag"])

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


def _token_argument(token: int) -> dict[str, dict[str, str]]:
    return {"Metadata": {TOKEN_METADATA: str(token)}} if token else {}


def _content_type_argument(parameter: str, content_type: str) -> dict[str, str]:
    """Return the content type as a parameter of S3, or nothing if S3 would reject it."""
    is_valid = content_type.isascii() and content_type.isprintable()
    return (
        {parameter: content_type}
        if is_valid and 0 < len(content_type) <= MAX_CONTENT_TYPE_CHARACTERS
        else {}
    )
