"""`make openapi`: writes the document that is served, its copy in docs/, and the reference."""

import json
from pathlib import Path

from punctual.web.openapi.document import build_document
from punctual.web.openapi.reference import build_reference

SERVED = Path(__file__).with_name("openapi.json")


def texts() -> dict[Path, str]:
    """What is written where; relative paths begin at the project's root."""
    made = build_document()
    return {
        SERVED: json.dumps(made, ensure_ascii=False, separators=(",", ":")),
        Path("docs/openapi.json"): json.dumps(made, ensure_ascii=False, indent=1) + "\n",
        Path("docs/reference/api.md"): build_reference(made),
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
