"""The layers: their hash, their bytecode, and the errors of a build."""

import importlib.util
import marshal
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack

from infra.build import bytecode, packaging
from infra.build.bytecode import (
    BYTECODE_MAGIC,
    LAYER_PYTHON_PATH,
    NoCompiler,
    check_bytecode,
    compile_for_host,
    compile_for_lambda,
)
from infra.build.packaging import LAMBDA_TARGET, NotPackaged, host_target, target_named
from tests.support.infra.synthesis import NO_LAYERS, assembly, resources

HOST_MAGIC = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing/__init__.py").write_text("")
    (tmp_path / "thing/part.py").write_text("def answer():\n    return 42\n")
    return tmp_path


def compiled(folder: Path) -> bytes:
    (path,) = (folder / "thing/__pycache__").glob("part.*.pyc")
    return path.read_bytes()


def test_host_bytecode_runs_without_checking_the_source(folder: Path) -> None:
    compile_for_host(folder)
    check_bytecode(folder, HOST_MAGIC)
    (folder / "thing/part.py").write_text("def answer():\n    return 43\n")
    sys.path.insert(0, str(folder))
    try:
        thing: Any = importlib.import_module("thing.part")
    finally:
        sys.path.remove(str(folder))
        for name in ("thing", "thing.part"):
            sys.modules.pop(name, None)
    assert thing.answer() == 42


def test_traceback_names_the_path_on_lambda(folder: Path) -> None:
    compile_for_host(folder)
    assert marshal.loads(compiled(folder)[16:]).co_filename == f"{LAYER_PYTHON_PATH}/thing/part.py"


def test_pyodide_compiles_for_python_of_lambda(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has no Python 3.13."""
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if "python" in name else find(name))
    compile_for_lambda(folder)
    data = compiled(folder)
    assert int.from_bytes(data[:2], "little") == BYTECODE_MAGIC
    assert int.from_bytes(data[4:8], "little") == 1  # an unchecked hash-based pyc


def test_other_or_missing_bytecode_is_refused(folder: Path) -> None:
    with pytest.raises(NoCompiler, match=rf"thing/__init__\.py has no bytecode {BYTECODE_MAGIC}"):
        check_bytecode(folder, BYTECODE_MAGIC)
    compile_for_host(folder)
    with pytest.raises(NoCompiler, match=r"thing/__init__\.py has no bytecode 1"):
        check_bytecode(folder, 1)


def test_missing_compiler_is_reported_with_a_remedy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(NoCompiler, match=r"npm ci.*Python 3\.13") as raised:
        compile_for_lambda(folder)
    assert "\n" not in str(raised.value)


def test_python_shim_that_does_not_run_is_skipped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\necho not installed >&2\nexit 127\n")
    shim.chmod(0o755)
    compiled_folders: list[Path] = []
    monkeypatch.setattr(shutil, "which", lambda _name: str(shim))
    monkeypatch.setattr(
        bytecode, "_compile_with_pyodide", lambda at, _: compiled_folders.append(at)
    )
    with pytest.raises(NoCompiler):
        compile_for_lambda(folder)
    assert compiled_folders == [folder]


def test_vendor_target_is_lambda_or_host() -> None:
    assert target_named(None) == target_named("lambda") == LAMBDA_TARGET
    assert target_named("host") == host_target() != LAMBDA_TARGET
    with pytest.raises(NotPackaged, match="vendorFor must be host or lambda, not 'mars'"):
        target_named("mars")


def test_layer_hash_covers_sources_and_target(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaging, "PROJECT_ROOT", folder)
    files = packaging._sources(folder)
    first = packaging._digest(LAMBDA_TARGET, *files)
    compile_for_host(folder)
    assert packaging._digest(LAMBDA_TARGET, *packaging._sources(folder)) == first
    assert packaging._digest(host_target(), *files) != first
    (folder / "thing/part.py").write_text("def answer():\n    return 43\n")
    assert packaging._digest(LAMBDA_TARGET, *files) != first


def test_bundle_is_built_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "PROJECT_ROOT", folder)
    monkeypatch.setattr(packaging, "CORE_SOURCE", folder / "source")
    monkeypatch.setattr(packaging, "LAYER_BUILD_FOLDER", folder / "built")
    shutil.copytree(folder / "thing", folder / "source/thing")
    places = []
    for _ in range(2):
        packaging.core_layer(Stack(App(), "Some"), host_target())
        (place,) = (folder / "built").iterdir()
        places.append((place, place.stat().st_mtime_ns))
    assert places[0] == places[1]
    assert list((places[0][0] / "python/thing/__pycache__").iterdir())


def test_layer_over_its_size_limit_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each synthesis checks the real layers, whether it builds or reuses them."""
    monkeypatch.setattr(packaging, "PROJECT_ROOT", folder)
    monkeypatch.setattr(packaging, "CORE_SOURCE", folder / "source")
    monkeypatch.setattr(packaging, "LAYER_BUILD_FOLDER", folder / "built")
    monkeypatch.setattr(packaging, "compile_for_lambda", lambda _folder: None)
    shutil.copytree(folder / "thing", folder / "source/thing")
    (folder / "source/thing/heavy.bin").write_bytes(bytes(packaging.MAX_LAYER_BYTES["core"]))
    for _ in range(2):  # the second build reuses the bundle
        with pytest.raises(NotPackaged, match=r"layer core has 6\.0 MB unpacked; .* allows 6 MB"):
            packaging.core_layer(Stack(App(), "Some"), LAMBDA_TARGET)
        assert "layer core for cp3.13-manylinux2014_aarch64: 6.0 MB" in capsys.readouterr().err
    (folder / "source/thing/heavy.bin").write_bytes(b"")
    packaging.core_layer(Stack(App(), "Some"), LAMBDA_TARGET)


def test_layer_limits_total_a_sixth_of_the_lambda_limit() -> None:
    assert set(packaging.MAX_LAYER_BYTES) == {"core", "vendor"}
    assert sum(packaging.MAX_LAYER_BYTES.values()) < 250_000_000 / 6


def test_unbuilt_layer_has_another_key_than_the_built_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CDK keeps both in one folder by hash. Destroy builds no layer, deploy builds them."""
    monkeypatch.setattr(packaging, "PROJECT_ROOT", folder)
    monkeypatch.setattr(packaging, "CORE_SOURCE", folder / "source")
    monkeypatch.setattr(packaging, "LAYER_BUILD_FOLDER", folder / "built")
    shutil.copytree(folder / "thing", folder / "source/thing")

    def key(context: dict[str, Any]) -> str:
        stack = Stack(App(context=context), "Some")
        location = packaging.core_layer(stack, host_target()).bind(stack).s3_location
        assert location is not None
        return location.object_key

    unbuilt = {"aws:cdk:bundling-stacks": NO_LAYERS}
    assert key({}) == key({}) != key(unbuilt) == key(unbuilt)


def test_function_without_a_handler_is_named() -> None:
    with pytest.raises(NotPackaged, match=r"functions/teapot/handler\.py does not exist"):
        packaging.function_code("teapot")


def test_all_stacks_share_two_layers_and_one_has_node() -> None:
    keys = {
        layer.properties["Content"]["S3Key"]
        for layer in resources(assembly("dev"), "AWS::Lambda::LayerVersion")
    }
    assert len(keys) == 3
