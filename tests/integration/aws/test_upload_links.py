"""Presigned uploads on AWS: what the signature fixes, and for how long."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from punctual.aws.s3 import S3Blobs
from punctual.domain.errors import Unavailable
from punctual.engine.ports.blobs import Blob, Upload, VersionedPut
from tests.support.aws.moto_adapter import BUCKET, Moto, moto
from tests.support.aws.moto_faults import refused, sent_twice
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


def put(upload: Upload, data: bytes) -> int:
    answer = requests.put(upload.url, data=data, headers=dict(upload.headers), timeout=5)
    return answer.status_code


def link(aws: Moto, token: int) -> Upload:
    return aws.ports.blobs.upload_link(NAME, 3, "text/csv", token=token)


def test_upload_of_a_claim_carries_its_signed_fencing_token(aws: Moto) -> None:
    upload = link(aws, 7)
    signed_headers = parse_qs(urlsplit(upload.url).query)["X-Amz-SignedHeaders"][0].split(";")
    assert {"if-none-match", "x-amz-meta-fencing-token"} <= set(signed_headers)
    assert upload.headers["x-amz-meta-fencing-token"] == "7"
    assert put(upload, b"own") == 200
    assert put(upload, b"two") == 412
    assert aws.ports.blobs.accept_upload(NAME, 7)
    assert not aws.ports.blobs.accept_upload(NAME, 8)
    assert aws.ports.blobs.get(NAME) == b"own"


@pytest.mark.parametrize("is_filled_before", [False, True])
def test_upload_of_an_earlier_claim_is_replaced_and_never_accepted(
    aws: Moto, is_filled_before: bool
) -> None:
    early = link(aws, 7)
    if is_filled_before:
        assert put(early, b"bad") == 200
    own = link(aws, 9)
    assert ("If-Match" in own.headers) is is_filled_before
    if not is_filled_before:
        assert put(early, b"bad") == 200
        assert put(own, b"own") == 412
        assert not aws.ports.blobs.accept_upload(NAME, 9)
        own = link(aws, 9)
    assert put(own, b"own") == 200
    assert [put(early, b"bad"), put(own, b"two"), put(link(aws, 8), b"bad")] == [412] * 3
    assert aws.ports.blobs.get(NAME) == b"own"
    assert aws.ports.blobs.accept_upload(NAME, 9)


def test_put_of_an_earlier_claim_replaces_nothing(aws: Moto) -> None:
    aws.ports.blobs.put(NAME, b"own", "text/csv", 9)
    with pytest.raises(Unavailable, match="later claim"):
        aws.ports.blobs.put(NAME, b"bad", "text/csv", 7)
    assert put(link(aws, 7), b"bad") == 412
    assert aws.ports.blobs.get(NAME) == b"own"


def test_put_that_others_outrun_again_and_again_is_unavailable(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.ports.blobs.put(NAME, b"1", "text/csv", 7)
    find = S3Blobs._find

    def find_then_change(blobs: S3Blobs, name: str) -> Any:
        found = find(blobs, name)
        blobs.put(name, b"12" if blobs.get(name) == b"1" else b"1", "text/csv")
        return found

    monkeypatch.setattr(S3Blobs, "_find", find_then_change)
    with pytest.raises(Unavailable, match="same time"):
        aws.ports.blobs.put(NAME, b"own", "text/csv", 9)


def test_put_whose_answer_is_lost_stores_its_own_object(aws: Moto) -> None:
    with sent_twice(aws.clients.s3, "PutObject"):
        aws.ports.blobs.put(NAME, b"own", "text/csv", 9)
    assert aws.ports.blobs.get(NAME) == b"own"


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_versioned_put_without_an_answer_is_unavailable(aws: Moto, code: str) -> None:
    blob = Blob("logs/acme/j/r/1.parts/7-00", b"1", "text/plain")
    with refused(aws.clients.s3, "PutObject", 99, code, 503):
        (answer,) = aws.ports.blobs.put_versions([VersionedPut(blob, "")])
    assert isinstance(answer, Unavailable)
    assert aws.ports.blobs.get(blob.name) is None


@pytest.mark.parametrize("content_type", ["text/\xe9", "text/" + "x" * 300, ""])
def test_upload_with_invalid_content_type_has_unknown_type(aws: Moto, content_type: str) -> None:
    upload = aws.ports.blobs.upload_link(NAME, 5, content_type)
    assert upload.headers["Content-Type"] == "application/octet-stream"


def test_names_of_a_folder_are_listed_over_several_pages(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.aws.s3.S3_LIST_PAGE_SIZE", 2)
    names = [f"logs/acme/j/r/1.parts/7-{number:02}" for number in range(5)]
    for name in names:
        aws.ports.blobs.put(name, b"1", "text/plain")
    assert aws.ports.blobs.list_names("logs/acme/j/r/1.parts/") == names
