"""Check that a bill of materials names the packages of a lock and their licences, and no others.

`check_sbom.py BILL LOCK`
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.M)


def differences(bill: Mapping[str, Any], lock: str) -> list[str]:
    """Return a line for each package that stands in only one of the two, or without a licence."""
    parts = bill.get("components", ())
    billed = {(_normal(part["name"]), part["version"]) for part in parts}
    pinned = {(_normal(name), version) for name, version in _PIN.findall(lock)}
    return [
        *(f"{name} {version} is in the lock only" for name, version in sorted(pinned - billed)),
        *(f"{name} {version} is in the bill only" for name, version in sorted(billed - pinned)),
        *(f"{part['name']} has no licence" for part in parts if not part.get("licenses")),
    ]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(bill: str, lock: str) -> int:
    found = differences(json.loads(Path(bill).read_text()), Path(lock).read_text())
    for line in found:
        print(f"{bill}: {line}", file=sys.stderr)
    if not found:
        print(f"{bill} names the packages of {lock}, with their licences.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
