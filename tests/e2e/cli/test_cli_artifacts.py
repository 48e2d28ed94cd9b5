"""`punctual artifacts`, and `artifact:` in the files of `apply`."""

import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest

from punctual.client import Punctual
from punctual_cli.input.artifact_files import pack_folder
from tests.e2e.cli.program import Program

JOBS = """
set: reports
jobs:
  - name: report
    schedule_type: CRON
    cron_expression: 0 9 * * *
    task: {type: script, runtime: python, artifact: build/report}
"""


@pytest.fixture
def folder(program: Program) -> Path:
    """Return a folder that a job file names, with the job file beside it."""
    folder = program.home / "build" / "report"
    folder.mkdir(parents=True)
    (folder / "main.py").write_text("from numbers_of_today import text\nprint(text)\n")
    (folder / "numbers_of_today.py").write_text("text = 'one'\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "main.pyc").write_bytes(b"left out")
    (program.home / "jobs.yaml").write_text(JOBS)
    return folder


def test_file_is_uploaded_listed_shown_and_deleted(program: Program) -> None:
    file = program.home / "hello.py"
    file.write_text("print('hello')\n")
    stored = program.json("artifacts", "upload", "hello.py")
    assert stored["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (stored["name"], stored["status"]) == ("hello.py", "STORED")
    artifact_id = stored["artifact_id"]
    assert program.json("artifacts", "upload", "hello.py")["artifact_id"] == artifact_id
    assert "hello.py" in program("artifacts", "list").out
    assert "15 bytes" in program("artifacts", "get", artifact_id).out
    assert "Deleted hello.py" in program("artifacts", "delete", artifact_id).out
    program("artifacts", "get", artifact_id, code=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.py", "is not a file or a folder"), ("empty.py", "is empty"), ("bare", "has no files")],
)
def test_path_without_content_is_refused(program: Program, name: str, message: str) -> None:
    (program.home / "empty.py").touch()
    (program.home / "bare").mkdir()
    assert message in program("artifacts", "upload", name, code=2).err


def test_apply_uploads_what_changed(program: Program, folder: Path, client: Punctual) -> None:
    plan = program.json("apply", "-f", "jobs.yaml", "--dry-run")
    (upload,) = plan["upload"]
    assert upload["file"].endswith("build/report")
    known = {artifact.artifact_id for artifact in client.artifacts.list()}
    assert upload["artifact_id"] not in known
    shown = program("apply", "-f", "jobs.yaml", "--yes").out
    assert "^ upload build/report" in shown
    (job,) = client.jobs.list(status="SCHEDULED")
    assert job.name == "report"
    assert job.task is not None
    assert job.task["artifact_id"] == upload["artifact_id"]
    assert [user.name for user in client.artifacts.get(upload["artifact_id"]).jobs] == ["report"]
    (listed,) = client.artifacts.list()
    assert ([user.name for user in listed.jobs], listed.more_jobs) == (["report"], False)
    (row,) = [line for line in program("artifacts", "list").out.splitlines() if "STORED" in line]
    assert row.split("STORED")[1].split() == ["report"]
    assert "1 unchanged" in program("apply", "-f", "jobs.yaml", "--yes").out
    (folder / "numbers_of_today.py").write_text("text = 'two'\n")
    changed = program("apply", "-f", "jobs.yaml", "--yes").out
    assert "^ upload build/report" in changed
    assert "task.artifact_id" in changed
    run = client.jobs.run(job.job_id)
    client.wait_for(run)
    assert client.runs.output(job.job_id, run.run_id).text == "two\n"


def test_path_of_an_artifact_begins_at_its_file(program: Program, folder: Path) -> None:
    (program.home / "elsewhere").mkdir()
    (program.home / "elsewhere" / "jobs.yaml").write_text(JOBS)
    error = program("apply", "-f", "elsewhere/jobs.yaml", "--yes", code=4).err
    assert "elsewhere/jobs.yaml:7: task.artifact: there is no file" in error
    assert folder.is_dir()


def test_artifact_and_its_id_are_not_both_named(program: Program, folder: Path) -> None:
    text = JOBS.replace("artifact: build/report", "artifact: build/report, artifact_id: x")
    (program.home / "jobs.yaml").write_text(text)
    assert "must not be sent together" in program("apply", "-f", "jobs.yaml", code=4).err
    assert folder.is_dir()


def test_same_folder_gives_the_same_zip(tmp_path: Path) -> None:
    for number, order in enumerate((("a.py", "b.py"), ("b.py", "a.py"))):
        folder = tmp_path / str(number) / "app"
        folder.mkdir(parents=True)
        for name in order:
            (folder / name).write_text(f"# {name}\n")
        os.utime(folder / "a.py", (number * 1_000_000, number * 1_000_000))
        pack_folder(folder, tmp_path / f"{number}.zip")
    first, second = (tmp_path / f"{number}.zip" for number in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert zipfile.ZipFile(first).namelist() == ["a.py", "b.py"]


def test_json_of_a_plan_without_artifacts_has_no_uploads(program: Program) -> None:
    text = "jobs:\n  - {name: a, schedule_type: INTERVAL, interval_seconds: 60}\n"
    out = program("apply", "-f", "-", "--dry-run", "--json", stdin=text).out
    assert json.loads(out)["upload"] == []
