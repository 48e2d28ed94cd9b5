"""Modules that stacks and cold functions import do not bring heavy packages along."""

import subprocess
import sys
from pathlib import Path

LAYER = Path(__file__).parents[3] / "layers/core/python"


def loaded_by(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after this code."""
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=LAYER,
    )
    return set(run.stdout.split())


def packages(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules}


def test_key_module_imports_no_boto3() -> None:
    loaded = loaded_by("import punctual.aws.dynamodb.keys")
    assert "punctual.aws.dynamodb.keys" in loaded
    assert not {name for name in loaded if name.startswith(("boto", "msgspec"))}


def test_contract_module_imports_no_heavy_packages() -> None:
    loaded = loaded_by("import punctual.web.contract")
    assert "punctual.web.contract" in loaded
    heavy = {"pydantic", "pydantic_core", "boto3", "botocore", "msgspec", "aws_lambda_powertools"}
    assert packages(loaded) & heavy == set()


def test_openapi_route_imports_no_models() -> None:
    loaded = loaded_by("from punctual.web.routes import openapi; openapi.read_openapi_file()")
    assert "punctual.web.routes.openapi" in loaded
    assert packages(loaded) & {"pydantic", "pydantic_core"} == set()
