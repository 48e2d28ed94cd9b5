"""Blobs as S3 objects. Each key contains its tenant."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, RetryPolicy, answer
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.engine.ports.blobs import Blob

MOST_DELETED = 1_000
LISTED = 1_000  # objects in a page; the maximum of S3
LINK_SECONDS = 300
LONGEST_TYPE = 255
MISSING = frozenset({"NoSuchKey", "404"})
BEHIND = "InvalidRange"


class Listed(NamedTuple):
    name: str
    stored_at: datetime


class Page(NamedTuple):
    blobs: Sequence[Listed]
    cursor: str | None  # the key to continue after; None at the end


class S3Blobs:
    def __init__(
        self, client: Client, bucket: str, patience: RetryPolicy, crew: ThreadPool
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._patience = patience
        self._crew = crew

    def put(self, name: str, data: bytes, content_type: str) -> None:
        typed = _typed("ContentType", content_type)
        answer(
            "storing a blob",
            lambda: self._client().put_object(Bucket=self._bucket, Key=name, Body=data, **typed),
        )

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[Unavailable | None]:
        """Put several objects in parallel, because one call of S3 stores one object."""
        return self._crew.map(self._put, blobs)

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
        bounded = {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        return self._read(name, bounded if start or end is not None else {})

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. A missing object is not an error. Failed deletes are retried."""
        for chunk in chunked(names, MOST_DELETED):
            self._delete(chunk)

    def listed(self, prefix: str, after: str | None) -> Page:
        """Return a page of the objects with this key prefix, sorted by key."""
        start = {} if after is None else {"StartAfter": after}
        response = answer(
            "listing blobs",
            lambda: self._client().list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, MaxKeys=LISTED, **start
            ),
        )
        found = [Listed(one["Key"], one["LastModified"]) for one in response.get("Contents", [])]
        return Page(found, found[-1].name if found and response["IsTruncated"] else None)

    def link(self, name: str, content_type: str) -> str | None:
        typed = _typed("ResponseContentType", content_type)
        link: str = answer(
            "signing a link",
            lambda: self._client().generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": name, **typed},
                ExpiresIn=LINK_SECONDS,
            ),
        )
        return link

    def _read(self, name: str, bounded: dict[str, Any]) -> bytes | None:
        def read() -> bytes | None:
            try:
                found = self._client().get_object(Bucket=self._bucket, Key=name, **bounded)
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code")
                if code in MISSING:
                    return None
                if code == BEHIND:
                    return b""
                raise
            data: bytes = found["Body"].read()
            return data

        return answer("reading a blob", read)

    def _delete(self, names: Sequence[str]) -> None:
        left = list(names)
        for attempt in range(self._patience.tries):
            objects = {"Objects": [{"Key": name} for name in left], "Quiet": True}
            response = answer("deleting blobs", partial(self._delete_some, objects))
            left = [error["Key"] for error in response.get("Errors", [])]
            if not left:
                return
            self._patience.wait(attempt, "delete")
        raise Unavailable(f"S3 did not delete {len(left)} blobs.")

    def _delete_some(self, objects: dict[str, Any]) -> Any:
        return self._client().delete_objects(Bucket=self._bucket, Delete=objects)


def _typed(parameter: str, content_type: str) -> dict[str, str]:
    """Return the content type as a parameter of S3, or nothing if S3 would reject it."""
    fits = content_type.isascii() and content_type.isprintable()
    return {parameter: content_type} if fits and 0 < len(content_type) <= LONGEST_TYPE else {}
