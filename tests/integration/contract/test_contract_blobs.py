"""Blobs: stored completely or not at all, under any name."""

import pytest

from punctual.engine.ports.blobs import Blob, VersionedPut
from tests.support.ports import Ports

NAMES = (
    "output/acme/job/run-1",
    "../../etc/passwd",
    "/absolute",
    "a//b",
    "a/./b",
    "a/b",
    "A/b",
    "a b+c&d?e=f%20#g",
    "日本/🕰/עברית",
    ".",
    "x" * 900,
)


def test_blob_is_read_as_it_was_written(ports: Ports) -> None:
    data = bytes(range(256)) * 1_024
    ports.blobs.put("output/1", data, "application/octet-stream")
    assert ports.blobs.get("output/1") == data


def test_blobs_put_together_are_all_stored(ports: Ports) -> None:
    blobs = [Blob(f"payloads/{n}", b"%d" % n, "application/json") for n in range(40)]
    assert list(ports.blobs.put_many(blobs)) == [None] * 40
    assert [ports.blobs.get(blob.name) for blob in blobs] == [blob.data for blob in blobs]
    names = ["payloads/7", "payloads/none", "payloads/3"]
    assert list(ports.blobs.get_many(names)) == [b"7", None, b"3"]
    assert list(ports.blobs.get_many([])) == []
    assert list(ports.blobs.put_many([])) == []


def test_empty_blob_differs_from_a_missing_one(ports: Ports) -> None:
    ports.blobs.put("empty", b"", "text/plain")
    assert ports.blobs.get("empty") == b""
    assert ports.blobs.get("missing") is None


def test_blob_put_again_is_replaced(ports: Ports) -> None:
    ports.blobs.put("b", b"a longer first one", "text/plain")
    ports.blobs.put("b", b"second", "text/plain")
    assert ports.blobs.get("b") == b"second"


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 6, b"345"),
        (0, 1, b"0"),
        (8, 100, b"89"),
        (10, None, b""),
        (50, None, b""),
        (4, 4, b""),
    ],
)
def test_range_of_a_blob_is_read(ports: Ports, start: int, end: int | None, wanted: bytes) -> None:
    ports.blobs.put("b", b"0123456789", "text/plain")
    assert ports.blobs.get("b", start, end) == wanted


def test_range_of_a_missing_blob_is_none(ports: Ports) -> None:
    assert ports.blobs.get("missing", 3, 6) is None


def test_blobs_of_similar_names_stay_apart(ports: Ports) -> None:
    for number, name in enumerate(NAMES):
        ports.blobs.put(name, b"%d" % number, "text/plain")
    assert [ports.blobs.get(name) for name in NAMES] == [b"%d" % n for n in range(len(NAMES))]


def test_deleted_blob_is_gone_and_a_second_delete_succeeds(ports: Ports) -> None:
    ports.blobs.put("a", b"1", "text/plain")
    ports.blobs.put("b", b"2", "text/plain")
    ports.blobs.delete([])
    ports.blobs.delete(["a", "missing"])
    ports.blobs.delete(["a"])
    assert (ports.blobs.get("a"), ports.blobs.get("b")) == (None, b"2")


def test_folder_lists_its_own_blobs_in_order(ports: Ports) -> None:
    parts = "logs/acme/019-job/019-run/1.parts/"
    others = ("logs/acme/019-job/019-run/1", "logs/acme/019-job/019-run/10.parts/7-00")
    names = [f"{parts}{part}" for part in ("7-00", "7-01", "8-00")]
    for name in (*reversed(names), *others):
        ports.blobs.put(name, b"1", "text/plain")
    assert list(ports.blobs.list_names(parts)) == names
    assert list(ports.blobs.list_names("logs/acme/019-job/019-run/2.parts/")) == []
    ports.blobs.delete(names)
    assert list(ports.blobs.list_names(parts)) == []
    assert [ports.blobs.get(name) for name in others] == [b"1", b"1"]


def test_versioned_put_needs_the_present_version(ports: Ports) -> None:
    name, other = (f"logs/acme/019-job/019-run/1.parts/7-0{number}" for number in range(2))

    def put(data: bytes, version: str) -> bool:
        (is_stored,) = ports.blobs.put_versions(
            [VersionedPut(Blob(name, data, "text/plain"), version)]
        )
        assert isinstance(is_stored, bool)
        return is_stored

    def version() -> str:
        (stored,) = ports.blobs.get_versions([name])
        assert stored is not None
        return stored.version

    assert list(ports.blobs.get_versions([name, other])) == [None, None]
    assert not put(b"1", "some version"), "the blob does not exist"
    assert put(b"1", "")
    assert not put(b"2", "")
    first = version()
    assert put(b"12", first)
    assert not put(b"13", first)
    assert version() not in ("", first)
    stored = ports.blobs.get_versions([other, name])
    assert [each and each.data for each in stored] == [None, b"12"]
    both = [
        VersionedPut(Blob(other, b"3", "text/plain"), ""),
        VersionedPut(Blob(name, b"4", "text/plain"), first),
    ]
    assert list(ports.blobs.put_versions(both)) == [True, False]
    assert list(ports.blobs.put_versions([])) == []
    assert list(ports.blobs.get_versions([])) == []


def test_put_with_a_token_replaces_the_blob_of_an_earlier_claim(ports: Ports) -> None:
    name = "outputs/acme/019-job/019-run/1"
    for token, data in [(2, b"first"), (2, b"again"), (5, b"later")]:
        ports.blobs.put(name, data, "text/plain", token)
        assert ports.blobs.get(name) == data
    blob = Blob(name, b"last", "text/plain", 6)
    assert list(ports.blobs.put_many([blob])) == [None]
    assert ports.blobs.get(name) == b"last"


def test_blob_that_no_claim_has_uploaded_is_not_accepted(ports: Ports) -> None:
    name = "outputs/acme/019-job/019-run/1"
    assert not ports.blobs.accept_upload(name, 2)
    ports.blobs.put(name, b"1", "text/plain")
    assert not ports.blobs.accept_upload(name, 2)


def test_link_is_an_address_or_none(ports: Ports) -> None:
    ports.blobs.put("a", b"1", "text/plain")
    link = ports.blobs.link("a", "text/plain")
    assert link is None or link.startswith("http")
