"""Write a bill of materials (CycloneDX) from a lock of npm, with the hash of each package.

`npm_sbom.py LOCK BILL`. `npm sbom` takes only projects with a version, which the layer has not.
"""

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SPEC_VERSION = "1.6"
NODE_BUILD_PREFIX = "node-linux-"  # packages that hold the build of Node.js of the same version
_HASH_ALGORITHMS = {"sha512": "SHA-512"}


class IncompleteLock(ValueError):
    """A package of the lock has no version, hash or licence."""


def bill_of(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bill of all packages that a lock may install."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": {"type": "application", "name": lock["name"]}},
        "components": list(_components(lock["packages"])),
    }


def _components(packages: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for path, package in packages.items():
        if not path:
            continue  # the project itself
        name = path.rpartition("node_modules/")[2]
        missing = [field for field in ("version", "integrity", "license") if field not in package]
        if missing:
            raise IncompleteLock(f"{name} has no {' and no '.join(missing)}")
        yield _component(name, package)


def _component(name: str, package: Mapping[str, Any]) -> dict[str, Any]:
    version = package["version"]
    algorithm, _, digest = package["integrity"].partition("-")
    component = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:npm/{name.replace('@', '%40')}@{version}",
        "hashes": [{"alg": _HASH_ALGORITHMS[algorithm], "content": base64.b64decode(digest).hex()}],
        "licenses": [{"license": {"id": package["license"]}}],
    }
    if name.startswith(NODE_BUILD_PREFIX):  # scanners know vulnerabilities of Node.js by this name
        component["cpe"] = f"cpe:2.3:a:nodejs:node.js:{version}:*:*:*:*:*:*:*"
    return component


def main(lock: str, bill: str) -> int:
    try:
        content = bill_of(json.loads(Path(lock).read_text()))
    except IncompleteLock as error:
        print(f"{lock}: {error}", file=sys.stderr)
        return 1
    Path(bill).write_text(json.dumps(content, indent=2) + "\n")
    print(f"{bill} names the packages of {lock}, with their hashes and licences.")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
