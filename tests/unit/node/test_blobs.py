"""Blobs as files: atomic writes, names inside the folder, logs that grow."""

import os
from pathlib import Path
from shutil import rmtree
from threading import Thread

import pytest

from punctual.domain.errors import PreconditionFailed, Unavailable
from punctual.node.files.blobs import FileBlobs
from punctual.node.files.uploads import UPLOAD_PATH, UploadLinks
from tests.support.builders import NOON


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_blob_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    for name in ("../out", "/etc/out", "a/../../out", "new/1", "x" * 5_000, ""):
        blobs.put(name, b"1", "text/plain")
    assert len(files(tmp_path)) == 6
    assert all(path.is_relative_to(tmp_path / "blobs") for path in files(tmp_path))


OUTPUT = "outputs/acme/019-job/019-run/1"


def test_output_is_a_file_at_the_path_of_its_key(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put(OUTPUT, b"said", "text/plain")
    assert (tmp_path / OUTPUT).read_bytes() == b"said"
    assert (tmp_path / OUTPUT).parent.stat().st_mode & 0o777 == 0o700
    for malformed_key in (
        "outputs/../../x/1",
        "outputs/acme/j/r",
        "outputs/.hidden/j/r/1",
        "outputs/a//r/1",
    ):
        blobs.put(malformed_key, b"1", "text/plain")
        assert blobs.get(malformed_key) == b"1"
    assert files(tmp_path / "outputs") == [tmp_path / OUTPUT]


def test_folders_of_a_run_and_a_job_are_deleted_with_their_last_output(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    second, other = f"{OUTPUT[:-1]}2", "outputs/acme/019-job/019-other/1"
    for name in (OUTPUT, second, other):
        blobs.put(name, b"1", "text/plain")
    blobs.delete([OUTPUT])
    assert (tmp_path / second).is_file()
    blobs.delete([second])
    assert not (tmp_path / second).parent.exists()
    assert (tmp_path / other).is_file()
    blobs.delete([other, other])
    assert list((tmp_path / "outputs" / "acme").iterdir()) == []
    blobs.put(OUTPUT, b"2", "text/plain")
    assert blobs.get(OUTPUT) == b"2"


def test_folders_of_a_log_end_with_its_last_part(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    part = "logs/acme/019-job/019-run/1.parts/7-00"
    blobs.put(part, b"line", "text/plain")
    assert (tmp_path / part).read_bytes() == b"line"
    blobs.delete([part])
    assert list((tmp_path / "logs" / "acme").iterdir()) == []


def test_folder_without_own_files_cannot_be_listed(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    for folder in ("", "../", "outputs/", "payloads/", "logs/acme/../../", "logs/acme/j/r/"):
        with pytest.raises(ValueError, match="no common folder"):
            blobs.list_names(folder)


def upload(blobs: FileBlobs, token: int, data: bytes) -> bool:
    """Return whether the node took the upload of a claim."""
    link = blobs.upload_link(OUTPUT, len(data), "text/csv", token=token)
    ticket = blobs.read_upload_link(link.url.removeprefix(UPLOAD_PATH))
    assert ticket is not None
    try:
        file = blobs.open_upload(ticket)
    except PreconditionFailed:
        return False
    file.write(data)
    file.finish()
    file.close()
    return True


@pytest.fixture
def upload_blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path, UploadLinks(lambda: NOON))


def test_upload_becomes_the_output_when_its_claim_finishes(
    upload_blobs: FileBlobs, tmp_path: Path
) -> None:
    assert upload(upload_blobs, 7, b"a,b")
    assert not upload(upload_blobs, 7, b"c,d")
    assert upload_blobs.get(OUTPUT) is None
    for _ in range(2):
        assert upload_blobs.accept_upload(OUTPUT, 7)
        assert (tmp_path / OUTPUT).read_bytes() == b"a,b"
    assert list((tmp_path / "new").iterdir()) == []


def test_upload_of_an_earlier_claim_neither_is_accepted_nor_blocks(
    upload_blobs: FileBlobs,
) -> None:
    assert upload(upload_blobs, 7, b"bad")
    assert not upload_blobs.accept_upload(OUTPUT, 9)
    assert upload(upload_blobs, 9, b"own")
    assert upload_blobs.accept_upload(OUTPUT, 9)
    assert not upload(upload_blobs, 7, b"two")
    assert upload_blobs.get(OUTPUT) == b"own"


def test_uploads_go_with_their_output(upload_blobs: FileBlobs, tmp_path: Path) -> None:
    other = f"{OUTPUT}0"
    upload_blobs.put(other, b"attempt 10", "text/csv")
    for token in (7, 9):
        assert upload(upload_blobs, token, b"own")
    assert upload_blobs.accept_upload(OUTPUT, 9)
    upload_blobs.delete([OUTPUT])
    assert files(tmp_path / "outputs") == [tmp_path / other]


def test_disk_that_fails_leaves_the_upload_for_the_next_call(
    upload_blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert upload(upload_blobs, 7, b"a,b")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", failing_sync)
        with pytest.raises(Unavailable):
            upload_blobs.accept_upload(OUTPUT, 7)
    assert upload_blobs.accept_upload(OUTPUT, 7)
    assert upload_blobs.get(OUTPUT) == b"a,b"


def test_outputs_are_stored_while_other_threads_delete_of_the_same_job(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    names = [[f"outputs/t/job/{thread}-{number}/1" for number in range(40)] for thread in range(4)]

    def put_and_delete(own_names: list[str]) -> None:
        for name in own_names:
            blobs.put(name, b"1", "text/plain")
            if name != own_names[-1]:
                blobs.delete([name])

    threads = [Thread(target=put_and_delete, args=(own_names,)) for own_names in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [blobs.get(own_names[-1]) for own_names in names] == [b"1"] * 4
    assert len(files(tmp_path)) == 4


def test_folder_that_failed_to_sync_is_created_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", failing_sync)
        with pytest.raises(Unavailable):
            blobs.put(OUTPUT, b"1", "text/plain")
    assert not (tmp_path / "outputs").exists()
    blobs.put(OUTPUT, b"2", "text/plain")
    assert blobs.get(OUTPUT) == b"2"


def failing_sync(_file: int) -> None:
    raise OSError(28, os.strerror(28))


def test_deleted_data_folder_is_not_created_again(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    rmtree(tmp_path / "blobs")
    with pytest.raises(Unavailable):
        blobs.put(OUTPUT, b"1", "text/plain")
    assert list(tmp_path.iterdir()) == []


def test_log_grows_and_is_read_from_any_offset(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    log = blobs.open_log("log")
    log.write(b"one ")
    assert blobs.get("log") == b"one "
    log.write(b"two")
    assert log.end() == 7
    assert blobs.get("log", 4) == b"two"


def test_empty_or_discarded_log_leaves_no_file(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    assert blobs.open_log("empty").end() == 0
    log = blobs.open_log("discarded")
    log.write(b"1")
    log.discard()
    assert files(tmp_path) == []


def test_failed_write_keeps_the_former_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put("a", b"former", "text/plain")

    monkeypatch.setattr("os.fsync", failing_sync)
    with pytest.raises(Unavailable, match="No space left"):
        blobs.put("a", b"new", "text/plain")
    assert blobs.get("a") == b"former"
    assert len(files(tmp_path)) == 1


def test_partial_writes_of_a_killed_node_are_deleted(tmp_path: Path) -> None:
    FileBlobs(tmp_path).put("a", b"1", "text/plain")
    (tmp_path / "new" / "0").write_bytes(b"half")
    blobs = FileBlobs(tmp_path)
    blobs.put("b", b"2", "text/plain")
    assert (blobs.get("a"), blobs.get("b"), len(files(tmp_path))) == (b"1", b"2", 2)


def test_threads_write_blobs_at_the_same_time(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)

    def write(thread: int) -> None:
        for number in range(20):
            blobs.put(f"own/{thread}/{number}", b"%d" % number, "text/plain")
            blobs.put("shared", b"%d" % thread * 1_000, "text/plain")

    threads = [Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [blobs.get(f"own/{thread}/{number}") for thread in range(4) for number in range(20)] == [
        b"%d" % number for _ in range(4) for number in range(20)
    ]
    assert blobs.get("shared") in [b"%d" % thread * 1_000 for thread in range(4)]
