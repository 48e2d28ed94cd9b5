"""Another release of the same code, that says so: what an update puts in the place of this one.

It is protected besides: an update protects the stage then, and the way back opens it again.
"""

import json
import shutil
from pathlib import Path

from punctual.settings import VERSION
from tests.rehearsal.deployment import STAGE
from tests.rehearsal.emulator import ROOT

COPIED = ("functions", "infra", "layers")
SHARED = (".venv", "node_modules", "build")
NEXT = f"{VERSION}+rehearsal"
SAYS = Path("layers/core/python/punctual/settings.py")


def next_release(folder: Path) -> Path:
    """Its own copy of all that is deployed, with another version in it."""
    tree = folder / "next"
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    (tree / "cdk.json").write_text(_protected((ROOT / "cdk.json").read_text()))
    for name in SHARED:
        (tree / name).symlink_to(ROOT / name)
    says = tree / SAYS
    before = says.read_text()
    after = before.replace(f'VERSION = "{VERSION}"', f'VERSION = "{NEXT}"')
    assert after != before
    says.write_text(after)
    return tree


def _protected(described: str) -> str:
    whole = json.loads(described)
    whole["context"]["stages"][STAGE]["protected"] = True
    return json.dumps(whole)
