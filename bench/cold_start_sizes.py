"""What a layer or a function weighs: as uploaded, and as Lambda unpacks it."""

import io
import zipfile
from pathlib import Path
from typing import NamedTuple


class Size(NamedTuple):
    """Bytes; `compiled` are those of the unpacked ones that are bytecode."""

    zipped: int
    plain: int
    compiled: int
    files: int


def size_of(folder: Path) -> Size:
    """A function's own bytecode is not shipped, a layer's is."""
    layer = (folder / "python").is_dir()
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    shipped = [path for path in paths if layer or "__pycache__" not in path.parts]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for path in shipped:
            written.write(path, path.relative_to(folder))
    sizes = {path: path.stat().st_size for path in shipped}
    compiled = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
    return Size(len(archive.getvalue()), sum(sizes.values()), compiled, len(sizes))
