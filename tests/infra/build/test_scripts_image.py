"""The image of long scripts: what it is built from, and whether Docker is there to build it."""

from pathlib import Path

import pytest

from infra.build.runner import runner_bytes
from infra.build.scripts_image import (
    DOCKER_VARIABLE,
    RUNNER_ZIP_IN_CONTEXT,
    SCRIPTS_DOCKERFILE,
    build_scripts_context,
    finds_docker,
)


def test_image_is_built_from_the_runner_and_the_dockerfile_alone() -> None:
    folder = build_scripts_context()
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert files == {
        "Dockerfile": SCRIPTS_DOCKERFILE.read_bytes(),
        RUNNER_ZIP_IN_CONTEXT: runner_bytes(),
    }
    assert build_scripts_context() == folder


def test_dockerfile_copies_nothing_else_of_the_context() -> None:
    copied = [
        line.split()[1]
        for line in SCRIPTS_DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
    ]
    assert copied == [RUNNER_ZIP_IN_CONTEXT]


@pytest.mark.parametrize(("code", "answers"), [(0, True), (1, False)])
def test_docker_is_there_if_its_daemon_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, answers: bool
) -> None:
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1" = info ] && exit {code}\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv(DOCKER_VARIABLE, str(program))
    assert finds_docker() is answers


def test_machine_without_docker_builds_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOCKER_VARIABLE, str(tmp_path / "no-docker"))
    assert not finds_docker()
