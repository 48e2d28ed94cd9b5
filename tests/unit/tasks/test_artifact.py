"""Artifacts are unpacked inside the folder of their run, within limits."""

import io
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from punctual.domain.errors import Unavailable
from punctual.tasks.contract import BadTask
from punctual.tasks.script import artifact
from punctual.tasks.script.artifact import packages_folder, unpack_artifact
from punctual.tasks.script.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder(tmp_path / "runs") as folder:
        yield folder


def zip_bytes(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def entry_info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def zip_of(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return data.getvalue()


def unpack(folder: RunFolder, data: bytes, runtime: str = "python") -> Path:
    file = folder.path / "artifact"
    file.write_bytes(data)
    return unpack_artifact(file, runtime, folder)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("runtime", "name", "mode"),
    [
        ("python", "main.py", 0o600),
        ("node", "main.js", 0o600),
        ("bash", "main.sh", 0o600),
        ("binary", "main", 0o700),
    ],
)
def test_single_file_becomes_the_entry(
    folder: RunFolder, runtime: str, name: str, mode: int
) -> None:
    entry = unpack(folder, b"content", runtime)
    assert (entry, entry.read_bytes(), mode_of(entry)) == (folder.code / name, b"content", mode)
    assert not (folder.path / "artifact").exists()


@pytest.mark.parametrize(
    ("runtime", "name"),
    [("python", "main.py"), ("node", "main.js"), ("bash", "main.sh"), ("binary", "main")],
)
def test_zip_is_unpacked_with_its_folders(folder: RunFolder, runtime: str, name: str) -> None:
    entry = unpack(folder, zip_bytes({name: b"begin", "a/b/data.txt": b"x"}), runtime)
    assert entry.read_bytes() == b"begin"
    assert (folder.code / "a/b/data.txt").read_bytes() == b"x"
    assert not (folder.path / "artifact").exists()


def test_file_outside_of_the_run_is_only_read(folder: RunFolder, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    stored.write_bytes(b"echo")
    assert unpack_artifact(stored, "bash", folder).read_bytes() == b"echo"
    stored.write_bytes(zip_bytes({"main.sh": b"echo 2"}))
    (folder.code / "main.sh").unlink()
    assert unpack_artifact(stored, "bash", folder).read_bytes() == b"echo 2"
    assert stored.is_file()


def test_program_with_a_zip_at_its_end_is_one_file(folder: RunFolder) -> None:
    data = b"\x7fELF" + zip_bytes({"a": b""})
    assert unpack(folder, data, "binary").read_bytes() == data


def test_zip_keeps_the_right_to_execute(folder: RunFolder) -> None:
    tool, data = entry_info("tool", 0o100755), entry_info("data", 0o100666)
    unpack(folder, zip_of([(entry_info("main.sh", 0), b""), (tool, b""), (data, b"")]), "bash")
    modes = {name: mode_of(folder.code / name) for name in ("tool", "data")}
    assert modes == {"tool": 0o700, "data": 0o600}


def test_wheels_are_unpacked_for_python(folder: RunFolder) -> None:
    wheel = zip_bytes({"pkg/__init__.py": b"A = 1", "one-1.data/purelib/extra.py": b"B = 2"})
    other = zip_bytes({"pkg/__init__.py": b"A = 3", "one-1.data/scripts/run": b""})
    unpack(
        folder,
        zip_bytes({"main.py": b"", "wheels/a-1-py3-none-any.whl": wheel, "wheels/b.whl": other}),
    )
    packages = packages_folder(folder)
    assert packages is not None
    assert (packages / "pkg/__init__.py").read_bytes() == b"A = 1"
    assert sorted(os.listdir(packages)) == ["extra.py", "pkg"]


def test_wheels_mean_nothing_to_other_runtimes(folder: RunFolder) -> None:
    unpack(folder, zip_bytes({"main.sh": b"", "wheels/a.whl": b"no zip"}), "bash")
    assert packages_folder(folder) is None


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "a\\..\\..\\out", "."])
def test_zip_cannot_write_outside_of_its_folder(folder: RunFolder, name: str) -> None:
    with pytest.raises(BadTask, match="outside of its folder"):
        unpack(folder, zip_of([(entry_info(name, 0o100644), b"x")]))
    assert sorted(path.name for path in folder.path.iterdir()) == [
        *("artifact", "code", "home", "tmp", "work"),
    ]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_zip_has_only_files_and_folders(folder: RunFolder, kind: int) -> None:
    with pytest.raises(BadTask, match="for example no link"):
        unpack(folder, zip_of([(entry_info("main.py", kind | 0o777), b"/etc/passwd")]))


def test_zip_with_a_missing_entry_is_refused(folder: RunFolder) -> None:
    with pytest.raises(BadTask, match=r"has no main\.js: a zip for node needs it at its top"):
        unpack(folder, zip_bytes({"main.py": b""}), "node")


def test_empty_zip_is_refused(folder: RunFolder) -> None:
    with pytest.raises(BadTask, match=r"has no main\.py"):
        unpack(folder, zip_bytes({}))


def test_entry_that_is_a_folder_is_refused(folder: RunFolder) -> None:
    with pytest.raises(BadTask, match=r"has no main\.py"):
        unpack(folder, zip_bytes({"main.py/a": b""}))


@pytest.mark.parametrize(
    "names", [["main.py", "main.py/x"], ["a" * 300], ["a/b", "a"], ["main.py", "./main.py"]]
)
def test_names_that_cannot_be_files_are_refused(folder: RunFolder, names: list[str]) -> None:
    with pytest.raises(BadTask, match="file name that cannot be used"):
        unpack(folder, zip_of([(entry_info(name, 0o100644), b"") for name in names]))


def test_unpacked_size_is_limited(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "MAX_UNPACKED_BYTES", 2 * 1024**2)
    data = zip_bytes({"main.py": bytes(1024**2), "a": bytes(2 * 1024**2)})
    assert len(data) < 10_000
    with pytest.raises(BadTask, match="over 2 MB when it is unpacked"):
        unpack(folder, data)


def test_wheels_count_in_the_unpacked_size(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact, "MAX_UNPACKED_BYTES", 2 * 1024**2)
    wheel = zip_bytes({"a": bytes(1024**2)})
    data = zip_bytes({"main.py": bytes(1024**2 + 1), "wheels/a.whl": wheel})
    with pytest.raises(BadTask, match="over 2 MB"):
        unpack(folder, data)


def test_number_of_files_is_limited(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "MAX_UNPACKED_FILES", 2)
    with pytest.raises(BadTask, match="over 2 files"):
        unpack(folder, zip_bytes({"main.py": b"", "a": b"", "b": b""}))


def test_list_of_files_is_limited_before_it_is_read(folder: RunFolder) -> None:
    data = bytearray(zip_bytes({"main.py": b""}))
    data[-10:-6] = (100_000_000).to_bytes(4, "little")  # its size in the end record
    with pytest.raises(BadTask, match="list of files of the zip artifact is too long"):
        unpack(folder, bytes(data))


def test_zip64_is_refused(folder: RunFolder) -> None:
    data = zip_bytes({"main.py": b""})
    locator = b"PK\x06\x07" + bytes(16)
    with pytest.raises(BadTask, match="zip64"):
        unpack(folder, data[:-22] + locator + data[-22:])


def test_encrypted_zip_is_refused(folder: RunFolder) -> None:
    data = bytearray(zip_bytes({"main.py": b""}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(BadTask, match=r"'main\.py' in the artifact is encrypted"):
        unpack(folder, bytes(data))


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_compressions_are_refused(folder: RunFolder, compression: int) -> None:
    with pytest.raises(BadTask, match="must be stored or deflated"):
        unpack(folder, zip_bytes({"main.py": b"x" * 100}, compression))


@pytest.mark.parametrize("cut", [10, 40, 70])
def test_damaged_zip_is_refused(folder: RunFolder, cut: int) -> None:
    data = zip_bytes({"main.py": b"print()" * 10})
    with pytest.raises(BadTask, match=r"damaged|outside"):
        unpack(folder, data[:cut] + data[cut + 5 :])


def test_full_disk_can_be_tried_again(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(artifact, "_take_file", no_room)
    with pytest.raises(Unavailable, match="no room for the artifact"):
        unpack(folder, b"x")


def test_unknown_runtime_is_refused(folder: RunFolder) -> None:
    with pytest.raises(BadTask, match="There is no runtime 'perl'"):
        unpack(folder, b"x", "perl")
