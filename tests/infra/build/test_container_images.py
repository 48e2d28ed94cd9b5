"""The Dockerfiles of the project, checked without Docker."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from infra.build.runner import RUNNER_BUILD_FOLDER, build_runner
from infra.config.cdk_json import PROJECT_ROOT

CONTAINERS = PROJECT_ROOT / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*/Dockerfile"))
INSTALL_SCRIPT = CONTAINERS / "install-python.sh"
RUNNER_TARGET = "/opt/punctual/runner.zip"


class Instruction(NamedTuple):
    name: str
    words: list[str]


def instructions(file: Path) -> list[Instruction]:
    text = re.sub(r"(?m)^\s*#.*\n", "", file.read_text()).replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [Instruction(words[0], words[1:]) for words in lines]


def named(file: Path, name: str) -> list[list[str]]:
    return [instruction.words for instruction in instructions(file) if instruction.name == name]


def base_images(file: Path) -> list[str]:
    """Return the images that a Dockerfile starts from, with the defaults of its arguments."""
    defaults = dict(words[0].split("=", 1) for words in named(file, "ARG"))
    return [
        re.sub(r"\$\{(\w+)\}", lambda match: defaults[match[1]], words[0])
        for words in named(file, "FROM")
    ]


def test_both_images_have_a_dockerfile() -> None:
    assert [file.parent.name for file in DOCKERFILES] == ["runner", "scripts"]


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_instructions_are_those_of_docker(file: Path) -> None:
    known = {"ARG", "FROM", "USER", "COPY", "RUN", "ENTRYPOINT", "WORKDIR"}
    assert {instruction.name for instruction in instructions(file)} <= known
    assert instructions(file)[-1].name == "ENTRYPOINT"


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_base_images_name_a_version(file: Path) -> None:
    images = base_images(file)
    assert images
    for image in images:
        assert re.fullmatch(r"[a-z]+:\d+(\.\d+)*(-[a-z]+)*", image), image


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_copied_files_exist_and_reach_the_build(file: Path) -> None:
    build_runner(RUNNER_BUILD_FOLDER / "runner.zip")
    allowed = file.with_name("Dockerfile.dockerignore").read_text().split()
    assert allowed[0] == "*"
    sources = [words[0] for words in named(file, "COPY") if not words[0].startswith("--from")]
    assert "build/runner/runner.zip" in sources
    for source in sources:
        assert (PROJECT_ROOT / source).is_file()
        assert f"!{source}" in allowed


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_entry_point_is_the_copied_runner(file: Path) -> None:
    [words] = named(file, "ENTRYPOINT")
    program, *options, runner = json.loads(" ".join(words))
    assert (options, runner) == (["-I"], RUNNER_TARGET)
    assert program in ("/opt/punctual/python", "/usr/local/bin/python3")
    assert RUNNER_TARGET in [words[-1] for words in named(file, "COPY")]


def test_scripts_run_without_the_rights_of_root() -> None:
    assert named(CONTAINERS / "scripts/Dockerfile", "USER")[-1] == ["10001"]


def test_image_of_scripts_has_the_runtimes_of_script_functions() -> None:
    node, python = base_images(CONTAINERS / "scripts/Dockerfile")
    layer = json.loads((PROJECT_ROOT / "layers/node/package.json").read_text())
    [versions] = {version.split(".")[0] for version in layer["optionalDependencies"].values()}
    assert node.startswith(f"node:{versions}-")
    assert python.startswith("python:3.13-")


def a_program(folder: Path, name: str, text: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def install(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the script with only the programs in `folder/bin`. The link is `folder/opt/python`."""
    programs = folder / "bin"
    for name in ("mkdir", "dirname", "ln"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    a_program(programs, "rm", "exit 0")  # it would remove files of this machine
    return subprocess.run(
        ["/bin/sh", str(INSTALL_SCRIPT), str(folder / "opt/python")],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


NEW_PYTHON = f'exec {sys.executable} "$@"'


def test_python_of_the_image_is_used(programs: Path) -> None:
    a_program(programs, "python3", NEW_PYTHON)
    assert install(programs.parent).returncode == 0
    assert os.readlink(programs.parent / "opt/python") == str(programs / "python3")


def test_newer_python_beside_an_old_one_is_used(programs: Path) -> None:
    a_program(programs, "python3", "exit 1")
    a_program(programs, "python3.12", NEW_PYTHON)
    assert install(programs.parent).returncode == 0
    assert os.readlink(programs.parent / "opt/python") == str(programs / "python3.12")


@pytest.mark.parametrize(
    ("manager", "package"),
    [("apt-get", "python3"), ("apk", "python3"), ("dnf", "python3.11"), ("microdnf", "python3.11")],
)
def test_missing_python_is_installed(programs: Path, manager: str, package: str) -> None:
    a_program(programs, "new", NEW_PYTHON)
    link = f"/usr/bin/ln -sf {programs}/new {programs}/{package}"
    a_program(programs, manager, f'case "$*" in *" {package}"*) {link};; esac')
    result = install(programs.parent)
    assert (result.returncode, result.stderr) == (0, "")
    assert os.readlink(programs.parent / "opt/python") == str(programs / package)


def test_image_without_a_package_manager_is_refused(programs: Path) -> None:
    result = install(programs.parent)
    assert (result.returncode, "no package manager" in result.stderr) == (1, True)


def test_image_with_an_old_python_alone_is_refused(programs: Path) -> None:
    a_program(programs, "python3", "exit 1")
    a_program(programs, "apk", "exit 0")
    result = install(programs.parent)
    assert (result.returncode, "older than 3.11" in result.stderr) == (1, True)
