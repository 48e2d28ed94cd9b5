"""Clients that are generated from the OpenAPI document have correct types and work."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.running import run_node

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
DOCUMENT = ROOT / "docs/openapi.json"
GENERATOR = ROOT / ".venv-clients/bin/openapi-python-client"
NODE_MODULES = ROOT / "node_modules"
# By default the generator runs ruff, which takes most of its time.
PYTHON_SETTINGS = "post_hooks: []\n"
STRICT = {
    "strict": True,
    "target": "es2022",
    "module": "nodenext",
    "lib": ["es2022", "dom"],
    "types": [],
    "exactOptionalPropertyTypes": True,
    "noUncheckedIndexedAccess": True,
    "outDir": ".",
}
CALLED = {
    "max_retries": 3,
    "types": ["CRON", "INTERVAL"],
    "trigger": "RUN_NOW",
    "refused": ["INVALID", "cron_expression"],
    "missing": 404,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("node") / "data") as node:
        yield f"http://127.0.0.1:{node.port}/v1"


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "NO_PROXY": "*", **env},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def check(answers: str) -> None:
    results: dict[str, Any] = json.loads(answers)
    job_id = results.pop("job_id")
    assert results.pop("listed") == [job_id]
    assert results == CALLED


def test_generated_python_client_has_correct_types_and_works(tmp_path: Path, url: str) -> None:
    assert GENERATOR.exists(), "run `requirements/install clients`"
    (tmp_path / "settings.yaml").write_text(PYTHON_SETTINGS)
    output = run(
        *(GENERATOR, "generate", "--path", DOCUMENT, "--config", "settings.yaml"),
        *("--meta", "none", "--output-path", "punctual_api", "--fail-on-warning"),
        cwd=tmp_path,
    )
    assert "warning" not in output.lower()
    shutil.copy(HERE / "caller.py.txt", tmp_path / "caller.py")
    mypy = (
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir=.mypy",
        "caller.py",
        "punctual_api",
    )
    assert "Success" in run(sys.executable, *mypy, cwd=tmp_path)
    check(run(sys.executable, "caller.py", url, cwd=tmp_path))


def test_generated_typescript_client_has_correct_types_and_works(tmp_path: Path, url: str) -> None:
    assert (NODE_MODULES / "openapi-typescript").exists(), "run `npm ci`"
    for name in ("caller.ts", "wrong.ts", "main.mjs"):
        shutil.copy(HERE / name, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    settings = {"compilerOptions": STRICT, "files": ["caller.ts", "wrong.ts"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    programs = NODE_MODULES / ".bin"
    run(programs / "openapi-typescript", DOCUMENT, "-o", "punctual_api.d.ts", cwd=tmp_path)
    run(programs / "tsc", "-p", ".", cwd=tmp_path)
    check(run("node", "main.mjs", url, cwd=tmp_path))
