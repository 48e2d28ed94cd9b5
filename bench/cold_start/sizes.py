"""Measure the size of a layer or function, zipped and unpacked."""

import io
import zipfile
from pathlib import Path
from typing import NamedTuple


class Size(NamedTuple):
    """Sizes in bytes. `compiled` is the bytecode's part of `plain`."""

    zipped: int
    plain: int
    compiled: int
    files: int


def size_of(folder: Path) -> Size:
    """Return the size of a folder as shipped. Bytecode counts for layers only."""
    is_layer = (folder / "python").is_dir()
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    shipped = [path for path in paths if is_layer or "__pycache__" not in path.parts]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for path in shipped:
            zip_file.write(path, path.relative_to(folder))
    sizes = {path: path.stat().st_size for path in shipped}
    compiled = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
    return Size(len(archive.getvalue()), sum(sizes.values()), compiled, len(sizes))
