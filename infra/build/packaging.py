"""Build the two layers without Docker: Punctual's code, and packages installed by pip."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import AssetHashType, Stack
from aws_cdk import aws_lambda as lambda_

from infra.build.bytecode import compile_for_host, compile_for_lambda
from infra.config.cdk_json import PROJECT_ROOT

CORE = PROJECT_ROOT / "layers/core/python"
LOCK = PROJECT_ROOT / "layers/vendor/requirements.txt"
FUNCTION_FOLDERS = PROJECT_ROOT / "functions"
BUILT = PROJECT_ROOT / "build/layers"
MAX_LAYER_BYTES = {"core": 4_000_000, "vendor": 34_000_000}
"""The limits are close to the present size, so that a new package is noticed. Lambda takes 250 MB
for a function with all its layers."""

BUNDLES_KEPT = 6
"""The number of bundles of each layer that stay on disk: two targets, some changes each."""

LAMBDA = ("--platform", "manylinux2014_aarch64", "--implementation", "cp", "--python-version")
LAMBDA_PYTHON = "3.13"
NOT_NEEDED = (
    "bin",
    "*/tests",
    "**/__pycache__",
    "**/*.pyi",
    "**/py.typed",
    "*.dist-info/RECORD",
    "*.dist-info/sboms",
    # A second copy of the time zones, and unused lists.
    "tzdata/zoneinfo/tzdata.zi",
    "tzdata/zoneinfo/*.tab",
    "tzdata/zoneinfo/leapseconds",
    "pydantic/v1",
    "pydantic/mypy.py",
    "aws_lambda_powertools/event_handler/openapi/swagger_ui/*.min.*",
    *(
        f"aws_lambda_powertools/utilities/{name}"
        for name in (
            "auth_alpha",
            "batch",
            "circuit_breaker",
            "data_masking",
            "feature_flags",
            "idempotency",
            "kafka",
            "parameters",
            "parser",
            "streaming",
        )
    ),
)
"""Files of packages that no function imports. Licences stay."""

NODE_PACKAGE = "node"
"""The package of the node, which never runs on Lambda."""

RECIPE = 2
"""The version of the build. Increase it to rebuild old bundles after a change of this module."""


_told: set[Path] = set()


class NotPackaged(RuntimeError):
    """A part of the deployment is missing or cannot be fetched."""


@dataclass(frozen=True, slots=True)
class Target:
    """The Python and the machine that layers are for."""

    name: str
    pip: tuple[str, ...]
    host: bool


LAMBDA_TARGET = Target(
    f"cp{LAMBDA_PYTHON}-manylinux2014_aarch64", (*LAMBDA, LAMBDA_PYTHON), host=False
)


def host_target() -> Target:
    """Return the target of this machine: a rehearsal runs the functions here."""
    name = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return Target(name, (), host=True)


def target_named(vendor_for: object) -> Target:
    """Return the target that the context value `vendorFor` names: `host` or, by default, Lambda."""
    if vendor_for is None or vendor_for == "lambda":
        return LAMBDA_TARGET
    if vendor_for == "host":
        return host_target()
    raise NotPackaged(f"vendorFor must be host or lambda, not {vendor_for!r}")


def core(stack: Stack, target: Target) -> lambda_.Code:
    """Return the layer of Punctual's own code."""
    return _code(stack, "core", CORE, _digest(target, *_sources(CORE)), target)


def vendor(stack: Stack, target: Target) -> lambda_.Code:
    """Return the layer of third-party packages, in the versions of the lock."""
    return _code(stack, "vendor", LOCK.parent, _digest(target, LOCK), target)


def built(target: Target) -> tuple[Path, Path]:
    """Build both layers outside a stack and return their folders."""
    ours = _built("core", _digest(target, *_sources(CORE)), target)
    return ours, _built("vendor", _digest(target, LOCK), target)


def function(folder: str) -> lambda_.Code:
    """Return the asset of one handler."""
    path = FUNCTION_FOLDERS / folder
    if not (path / "handler.py").is_file():
        raise NotPackaged(f"functions/{folder}/handler.py is not there, but a function needs it")
    return lambda_.Code.from_asset(str(path), exclude=["__pycache__", "*.pyc"])


def _code(stack: Stack, name: str, unbuilt: Path, digest: str, target: Target) -> lambda_.Code:
    # The hash covers the input. An unbuilt layer (bootstrap, destroy) has another hash: else a
    # deploy into the same folder would use it as the layer.
    needed = stack.bundling_required
    return lambda_.Code.from_asset(
        str(_built(name, digest, target) if needed else unbuilt),
        asset_hash=digest if needed else hashlib.sha256(f"unbuilt {digest}".encode()).hexdigest(),
        asset_hash_type=AssetHashType.CUSTOM,
    )


def _sources(folder: Path) -> list[Path]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path for path in paths if _belongs(path.relative_to(folder)))


def _belongs(path: Path) -> bool:
    return not {"__pycache__", NODE_PACKAGE}.intersection(path.parts) and path.suffix != ".pyc"


def _digest(target: Target, *files: Path) -> str:
    found = hashlib.sha256(f"{RECIPE} {target.name}".encode())
    for path in files:
        data = path.read_bytes()
        found.update(f"\0{path.relative_to(PROJECT_ROOT)}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def _built(name: str, digest: str, target: Target) -> Path:
    """Return the folder of the layer, built once for each digest; print its size once."""
    place = BUILT / f"{name}-{digest[:16]}"
    if not place.is_dir():
        _build(name, place, target)
    if place not in _told:
        sizes = {path: path.stat().st_size for path in place.rglob("*") if path.is_file()}
        compiled = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
        whole = sum(sizes.values())
        print(_size(name, target, whole, compiled), file=sys.stderr)
        if not target.host:
            _hold(name, whole)
        _told.add(place)
    return place


def _build(name: str, place: Path, target: Target) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT, prefix=f".{name}-") as made:
        folder = Path(made) / "layer/python"
        if name == "core":
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc", NODE_PACKAGE)
            shutil.copytree(CORE, folder, ignore=ignored)
        else:
            _install(folder, target)
            _strip(folder)
        (compile_for_host if target.host else compile_for_lambda)(folder)
        try:
            folder.parent.rename(place)
        except OSError:
            if not place.is_dir():  # else another synthesis built the same folder first
                raise
    bundles = sorted(BUILT.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)
    for old in bundles[:-BUNDLES_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _install(folder: Path, target: Target) -> None:
    # Twice quiet: errors only.
    command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    command += ["--no-input", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--no-compile", *target.pip, "--target", str(folder), "--requirement", str(LOCK)]
    # The user's own settings of pip must not change the target.
    environment = {**os.environ, "PIP_USER": "0", "PIP_CONSTRAINT": ""}
    if subprocess.run(command, env=environment, check=False).returncode:
        raise NotPackaged(f"pip could not install the vendor layer for {target.name} (see above)")


def _strip(folder: Path) -> None:
    for path in [path for pattern in NOT_NEEDED for path in folder.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _size(name: str, target: Target, whole: int, compiled: int) -> str:
    """Return a line about the size of a layer.

    >>> _size("core", LAMBDA_TARGET, 3_200_000, 1_940_000)
    'layer core for cp3.13-manylinux2014_aarch64: 3.2 MB, 1.9 MB of it bytecode'
    """
    return (
        f"layer {name} for {target.name}: {whole / 1e6:.1f} MB, "
        f"{compiled / 1e6:.1f} MB of it bytecode"
    )


def _hold(name: str, whole: int) -> None:
    allowed = MAX_LAYER_BYTES[name]
    if whole > allowed:
        raise NotPackaged(
            f"layer {name} has {whole / 1e6:.1f} MB unpacked, more than the {allowed / 1e6:.0f} "
            "that infra/build/packaging.py allows: leave out what no function needs, or raise it"
        )
