"""A damaged zip is either unpacked inside its folder or refused."""

import io
import tempfile
import zipfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from punctual.tasks.contract import BadTask
from punctual.tasks.script.artifact import unpack_artifact
from punctual.tasks.script.run_folder import RunFolder


def a_zip() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("main.py", b"print()" * 20)
        archive.writestr("folder/data", b"x" * 20)
    return data.getvalue()


ZIP = a_zip()
CHANGES = st.lists(
    st.tuples(st.integers(0, len(ZIP) - 1), st.integers(0, 255)), min_size=1, max_size=6
)


@given(CHANGES, st.integers(0, len(ZIP)))
def test_damaged_zip_is_unpacked_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(ZIP)
    for position, value in changes:
        data[position] = value
    with tempfile.TemporaryDirectory() as root, RunFolder(Path(root) / "runs") as folder:
        file = folder.path / "artifact"
        file.write_bytes(data[:cut] if cut % 5 == 0 else data)
        try:
            entry = unpack_artifact(file, "python", folder)
        except BadTask:
            entry = folder.code / "main.py"
        assert entry.parent == folder.code
        names = {path.name for path in folder.path.iterdir()}
        assert names <= {"artifact", "code", "home", "tmp", "work"}
        assert [path.name for path in Path(root).iterdir()] == ["runs"]
