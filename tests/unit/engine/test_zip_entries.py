"""The first bytes of a program in a zip, read in ranges."""

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.engine.queries.zip_entries import entry_head

HEAD_BYTES = 64
PROGRAM = b"\x7fELF" + bytes(range(200))


def a_zip(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def head_of(data: bytes) -> bytes:
    return entry_head(lambda start, end: data[start:end], len(data), "main", HEAD_BYTES)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_head_of_a_large_zip_is_read_in_small_ranges(method: int) -> None:
    files = {"data.txt": b"x" * 10_000, "main": PROGRAM + bytes(5_000_000)}
    data = a_zip(files, method)
    read: list[int] = []

    def read_range(start: int, end: int) -> bytes:
        read.append(end - start)
        return data[start:end]

    assert entry_head(read_range, len(data), "main", HEAD_BYTES) == PROGRAM[:HEAD_BYTES]
    assert sum(read) < 100_000


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"PK\x05\x06" + bytes(18), a_zip({"other": b"x"}), PROGRAM],
    ids=["empty", "short", "empty zip", "without the file", "not a zip"],
)
def test_content_without_the_file_has_no_head(data: bytes) -> None:
    assert head_of(data) == b""


def test_too_long_list_of_files_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.engine.queries.zip_entries.MAX_ZIP_READ_BYTES", 5_000)
    assert head_of(a_zip({"main": PROGRAM})) == PROGRAM[:HEAD_BYTES]
    many = {f"file-{number}": b"" for number in range(500)}
    assert head_of(a_zip({"main": PROGRAM, **many})) == b""


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_zip_has_a_head_or_none(changes: list[tuple[int, int]]) -> None:
    content = bytearray(a_zip({"main": PROGRAM * 3}))
    for place, value in changes:
        content[place % len(content)] = value
    assert len(head_of(bytes(content))) <= HEAD_BYTES
