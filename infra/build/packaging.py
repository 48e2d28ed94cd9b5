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

CORE_SOURCE = PROJECT_ROOT / "layers/core/python"
VENDOR_LOCK = PROJECT_ROOT / "layers/vendor/requirements.txt"
FUNCTIONS_FOLDER = PROJECT_ROOT / "functions"
LAYER_BUILD_FOLDER = PROJECT_ROOT / "build/layers"
MAX_LAYER_BYTES = {"core": 6_000_000, "vendor": 34_000_000}
"""The limits are close to the present size, so that a new package is noticed. Lambda takes 250 MB
for a function with all its layers."""

MAX_BUNDLES_ON_DISK = 6
"""The number of bundles of each layer that stay on disk: two targets, some changes each."""

LAMBDA_PIP_OPTIONS = (
    "--platform",
    "manylinux2014_aarch64",
    "--implementation",
    "cp",
    "--python-version",
)
LAMBDA_PYTHON_VERSION = "3.13"
UNUSED_VENDOR_FILES = (
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

LEFT_OUT_PACKAGES = ("client", "node", "runner")
"""The packages that no function with the layer imports. Script functions have the runner's zip."""

BUILD_RECIPE_VERSION = 4
"""The version of the build. Increase it to rebuild old bundles after a change of this module."""


_reported_layers: set[Path] = set()


class NotPackaged(RuntimeError):
    """A part of the deployment is missing or cannot be fetched."""


@dataclass(frozen=True, slots=True)
class Target:
    """The Python and the machine that layers are for."""

    name: str
    pip_options: tuple[str, ...]
    is_host: bool


LAMBDA_TARGET = Target(
    f"cp{LAMBDA_PYTHON_VERSION}-manylinux2014_aarch64",
    (*LAMBDA_PIP_OPTIONS, LAMBDA_PYTHON_VERSION),
    is_host=False,
)


def host_target() -> Target:
    """Return the target of this machine: a rehearsal runs the functions here."""
    name = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return Target(name, (), is_host=True)


def target_named(vendor_for: object) -> Target:
    """Return the target of the context value `vendorFor`: `host` or, by default, `lambda`."""
    if vendor_for is None or vendor_for == "lambda":
        return LAMBDA_TARGET
    if vendor_for == "host":
        return host_target()
    raise NotPackaged(f"vendorFor must be host or lambda, not {vendor_for!r}")


def core_layer(stack: Stack, target: Target) -> lambda_.Code:
    """Return the layer of Punctual's own code."""
    return _layer_code(stack, "core", CORE_SOURCE, _digest(target, *_sources(CORE_SOURCE)), target)


def vendor_layer(stack: Stack, target: Target) -> lambda_.Code:
    """Return the layer of third-party packages, in the versions of the lock."""
    return _layer_code(stack, "vendor", VENDOR_LOCK.parent, _digest(target, VENDOR_LOCK), target)


def build_layers(target: Target) -> tuple[Path, Path]:
    """Build both layers outside a stack and return their folders."""
    core_folder = _ensure_built("core", _digest(target, *_sources(CORE_SOURCE)), target)
    return core_folder, _ensure_built("vendor", _digest(target, VENDOR_LOCK), target)


def function_code(folder: str) -> lambda_.Code:
    """Return the asset of one handler."""
    path = FUNCTIONS_FOLDER / folder
    if not (path / "handler.py").is_file():
        raise NotPackaged(f"functions/{folder}/handler.py does not exist, but a function needs it")
    return lambda_.Code.from_asset(str(path), exclude=["__pycache__", "*.pyc"])


def _layer_code(
    stack: Stack, name: str, unbuilt_folder: Path, digest: str, target: Target
) -> lambda_.Code:
    # The hash covers the input. An unbuilt layer (bootstrap, destroy) has another hash, so
    # that a deploy into the same folder does not use it as the layer.
    must_build = stack.bundling_required
    return lambda_.Code.from_asset(
        str(_ensure_built(name, digest, target) if must_build else unbuilt_folder),
        asset_hash=digest
        if must_build
        else hashlib.sha256(f"unbuilt {digest}".encode()).hexdigest(),
        asset_hash_type=AssetHashType.CUSTOM,
    )


def _sources(folder: Path) -> list[Path]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path for path in paths if _is_packaged(path.relative_to(folder)))


def _is_packaged(path: Path) -> bool:
    left_out = {"__pycache__", *LEFT_OUT_PACKAGES}
    return path.suffix != ".pyc" and not left_out.intersection(path.parts)


def _digest(target: Target, *files: Path) -> str:
    digest = hashlib.sha256(f"{BUILD_RECIPE_VERSION} {target.name}".encode())
    for path in files:
        data = path.read_bytes()
        digest.update(f"\0{path.relative_to(PROJECT_ROOT)}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _ensure_built(name: str, digest: str, target: Target) -> Path:
    """Return the folder of the layer, built once for each digest; print its size once."""
    layer_folder = LAYER_BUILD_FOLDER / f"{name}-{digest[:16]}"
    if not layer_folder.is_dir():
        _build(name, layer_folder, target)
    if layer_folder not in _reported_layers:
        sizes = {path: path.stat().st_size for path in layer_folder.rglob("*") if path.is_file()}
        bytecode_bytes = sum(
            byte_count for path, byte_count in sizes.items() if path.suffix == ".pyc"
        )
        total_bytes = sum(sizes.values())
        print(_size_line(name, target, total_bytes, bytecode_bytes), file=sys.stderr)
        if not target.is_host:
            _check_size(name, total_bytes)
        _reported_layers.add(layer_folder)
    return layer_folder


def _build(name: str, layer_folder: Path, target: Target) -> None:
    LAYER_BUILD_FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=LAYER_BUILD_FOLDER, prefix=f".{name}-"
    ) as temporary_folder:
        folder = Path(temporary_folder) / "layer/python"
        if name == "core":
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc", *LEFT_OUT_PACKAGES)
            shutil.copytree(CORE_SOURCE, folder, ignore=ignore)
        else:
            _install(folder, target)
            _strip(folder)
        (compile_for_host if target.is_host else compile_for_lambda)(folder)
        try:
            folder.parent.rename(layer_folder)
        except OSError:
            if not layer_folder.is_dir():  # otherwise another synthesis built the same folder first
                raise
    bundles = sorted(LAYER_BUILD_FOLDER.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)
    for bundle in bundles[:-MAX_BUNDLES_ON_DISK]:
        shutil.rmtree(bundle, ignore_errors=True)


def _install(folder: Path, target: Target) -> None:
    # Twice quiet: errors only.
    command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    command += ["--no-input", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += [
        "--no-compile",
        *target.pip_options,
        "--target",
        str(folder),
        "--requirement",
        str(VENDOR_LOCK),
    ]
    # The user's own settings of pip must not change the target.
    environment = {**os.environ, "PIP_USER": "0", "PIP_CONSTRAINT": ""}
    if subprocess.run(command, env=environment, check=False).returncode:
        raise NotPackaged(f"pip could not install the vendor layer for {target.name} (see above)")


def _strip(folder: Path) -> None:
    for path in [path for pattern in UNUSED_VENDOR_FILES for path in folder.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _size_line(name: str, target: Target, total_bytes: int, bytecode_bytes: int) -> str:
    """Return a line about the size of a layer.

    >>> _size_line("core", LAMBDA_TARGET, 3_200_000, 1_940_000)
    'layer core for cp3.13-manylinux2014_aarch64: 3.2 MB, 1.9 MB of it bytecode'
    """
    return (
        f"layer {name} for {target.name}: {total_bytes / 1e6:.1f} MB, "
        f"{bytecode_bytes / 1e6:.1f} MB of it bytecode"
    )


def _check_size(name: str, total_bytes: int) -> None:
    max_bytes = MAX_LAYER_BYTES[name]
    if total_bytes > max_bytes:
        raise NotPackaged(
            f"layer {name} has {total_bytes / 1e6:.1f} MB unpacked; infra/build/packaging.py "
            f"allows {max_bytes / 1e6:.0f} MB.  Remove unused packages, or raise the limit"
        )
