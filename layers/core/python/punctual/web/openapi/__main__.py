"""`make openapi`: write the served document, its copy in docs/ and the reference page."""

import json
from pathlib import Path

from punctual.web.openapi.document import build_document
from punctual.web.openapi.reference import build_reference

SERVED_FILE = Path(__file__).with_name("openapi.json")


def build_files() -> dict[Path, str]:
    """Return the text of each file. Relative paths begin at the root of the project."""
    document = build_document()
    return {
        SERVED_FILE: json.dumps(document, ensure_ascii=False, separators=(",", ":")),
        Path("docs/openapi.json"): json.dumps(document, ensure_ascii=False, indent=1) + "\n",
        Path("docs/reference/api.md"): build_reference(document),
    }


if __name__ == "__main__":
    for path, text in build_files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
