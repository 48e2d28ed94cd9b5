"""Build the image of long scripts where Docker is: Python, Node.js and bash, with the runner."""

import hashlib
import os
import subprocess
from pathlib import Path

from infra.build.runner import runner_bytes
from infra.config.cdk_json import PROJECT_ROOT

SCRIPTS_DOCKERFILE = PROJECT_ROOT / "containers/scripts/Dockerfile"
SCRIPTS_BUILD_FOLDER = PROJECT_ROOT / "build/scripts-image"
RUNNER_ZIP_IN_CONTEXT = "build/runner/runner.zip"
DOCKER_VARIABLE = "CDK_DOCKER"  # the CDK reads it too
DOCKER_SECONDS = 20.0


def finds_docker() -> bool:
    """Return whether a Docker daemon answers on this machine, so that an image can be built."""
    command = [os.environ.get(DOCKER_VARIABLE) or "docker", "info"]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=DOCKER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def build_scripts_context() -> Path:
    """Return a folder with all that the image is built from, named by its content."""
    files = {
        "Dockerfile": SCRIPTS_DOCKERFILE.read_bytes(),
        RUNNER_ZIP_IN_CONTEXT: runner_bytes(),
    }
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()
    folder = SCRIPTS_BUILD_FOLDER / digest[:16]
    for name, data in files.items():
        file = folder / name
        if not file.is_file() or file.read_bytes() != data:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return folder
