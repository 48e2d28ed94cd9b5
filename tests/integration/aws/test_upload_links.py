"""Presigned uploads on AWS: what the signature fixes, and for how long."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tests.support.aws.moto_adapter import BUCKET, Moto, moto
from tests.support.builders_jobs import NOON

NAME = "outputs/acme/019-job/019-run/1"


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def test_upload_link_signs_size_type_and_first_write(aws: Moto) -> None:
    upload = aws.ports.blobs.upload_link(NAME, 5, "text/csv")
    url = urlsplit(upload.url)
    query = parse_qs(url.query)
    assert url.path.endswith(NAME)
    assert BUCKET in upload.url
    assert query["X-Amz-SignedHeaders"] == ["content-length;content-type;host;if-none-match"]
    assert query["X-Amz-Expires"] == ["900"]
    assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert upload.headers == {
        "Content-Length": "5",
        "Content-Type": "text/csv",
        "If-None-Match": "*",
    }


def test_upload_link_signs_digest_where_it_is_known(aws: Moto) -> None:
    digest = sha256(b"12345")
    upload = aws.ports.blobs.upload_link(NAME, 5, "text/csv", digest.hexdigest())
    signed_headers = parse_qs(urlsplit(upload.url).query)["X-Amz-SignedHeaders"][0].split(";")
    assert upload.headers["x-amz-checksum-sha256"] == b64encode(digest.digest()).decode()
    assert "x-amz-checksum-sha256" in signed_headers


def test_links_of_other_sizes_and_blobs_have_other_signatures(aws: Moto) -> None:
    blobs = aws.ports.blobs
    uploads = [
        blobs.upload_link(NAME, 5, "text/csv"),
        blobs.upload_link(NAME, 6, "text/csv"),
        blobs.upload_link(NAME, 5, "text/html"),
        blobs.upload_link(f"{NAME}1", 5, "text/csv"),
    ]
    signatures = {parse_qs(urlsplit(each.url).query)["X-Amz-Signature"][0] for each in uploads}
    assert len(signatures) == len(uploads)


def test_upload_by_link_stores_the_blob_with_its_type(aws: Moto) -> None:
    upload = aws.ports.blobs.upload_link(NAME, 5, "text/csv")
    answer = requests.put(upload.url, data=b"a,b\n1", headers=dict(upload.headers), timeout=5)
    assert answer.status_code == 200
    assert aws.ports.blobs.get(NAME) == b"a,b\n1"
    stored = aws.clients.s3.head_object(Bucket=BUCKET, Key=NAME)
    assert stored["ContentType"] == "text/csv"


@pytest.mark.parametrize("content_type", ["text/\xe9", "text/" + "x" * 300, ""])
def test_upload_with_invalid_content_type_has_unknown_type(aws: Moto, content_type: str) -> None:
    upload = aws.ports.blobs.upload_link(NAME, 5, content_type)
    assert upload.headers["Content-Type"] == "application/octet-stream"


def test_names_of_a_folder_are_listed_over_several_pages(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.aws.s3.S3_LIST_PAGE_SIZE", 2)
    names = [f"logs/acme/j/r/1.parts/{offset:012}" for offset in range(5)]
    for name in names:
        aws.ports.blobs.put(name, b"1", "text/plain")
    assert aws.ports.blobs.list_names("logs/acme/j/r/1.parts/") == names
