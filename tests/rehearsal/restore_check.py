"""Jobs at a restore time: created before it, changed after it, and back after the restore."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil

from infra.operations.limits import read_settings
from tests.rehearsal.deployment import STAGE
from tests.rehearsal.emulator import Account
from tests.rehearsal.progress import Failed
from tests.support.acceptance.contract import (
    EVERY_SECOND,
    NEVER_SOON,
    Api,
    Json,
    eventually,
    instant,
    soon,
)
from tests.support.acceptance.target import Target

LARGE = {"text": "restored " * 10_000}
"""A payload that is stored in the bucket, not in a row."""

BEFORE_RESTORE = 20.0  # seconds until a job is due that must not run meanwhile
WITHIN = 300.0  # seconds, because functions are slow on a busy machine


def back_up(account: Account) -> datetime:
    """Return a time that the tables can be restored to, and wait until it is past.

    The emulator restores backups only. AWS keeps every second.
    """
    client = account.client("dynamodb")
    for name in client.list_tables()["TableNames"]:
        client.create_backup(TableName=name, BackupName="moment")
    moment = ceil(time.time())
    eventually(lambda: time.time() > moment + 0.5)
    return datetime.fromtimestamp(moment, UTC)


class RestoreCheck:
    def __init__(self, account: Account, api: Api, target: Target) -> None:
        self._account = account
        self._api = api
        self._target = target
        self._ids: dict[str, str] = {}
        self._runs: dict[str, Json] = {}
        self._output = b""
        self._lost = ""

    def before(self) -> None:
        call = self._target.task
        jobs: dict[str, dict[str, Json]] = {
            "done": {"schedule_type": "IMMEDIATE", "task": call("/done")},
            "each second": {**EVERY_SECOND, "task": call("/each"), "max_concurrency": 4},
            "large": {**NEVER_SOON, "task": call("/echo"), "payload": LARGE},
            "changed": {**NEVER_SOON, "task": call("/changed")},
        }
        for name, fields in jobs.items():
            self._ids[name] = self._api.create(**{"name": name, **fields})["job_id"]
        self._output = self._api.output(self._ran("done"))
        self._ran("each second")
        self._ids["due meanwhile"] = self._api.create(
            name="due meanwhile",
            schedule_type="FUTURE",
            schedule_time=soon(BEFORE_RESTORE),
            task=call("/meanwhile"),
        )["job_id"]
        self._runs = {
            run["run_id"]: self._api.run(run["job_id"], run["run_id"])
            for name in ("done", "each second")
            for run in self._api.runs(self._ids[name], status="SUCCESS")
        }

    def after(self) -> None:
        """Make changes that the restore must undo.

        It creates one job, changes one, cancels one, and deletes all objects of the bucket.
        """
        self._lost = self._api.create(**NEVER_SOON, task={"type": "event"})["job_id"]
        changed = self._api("PATCH", f"/jobs/{self._ids['changed']}", {"name": "another"})
        gone = self._api("DELETE", f"/jobs/{self._ids['large']}")
        if (changed.status_code, gone.status_code) != (200, 200):
            raise Failed(f"jobs could not be changed: {changed.text}; {gone.text}")
        s3 = self._account.client("s3")
        bucket = read_settings(self._account, STAGE).bucket
        for obj in s3.list_objects_v2(Bucket=bucket)["Contents"]:
            s3.delete_object(Bucket=bucket, Key=obj["Key"])

    def is_closed(self) -> None:
        """Check that changes are refused while lists still work."""
        body = {"name": "closed", "schedule_type": "IMMEDIATE"}
        answer = self._api.http.post("/jobs", json=body)
        if answer.status_code < 429:
            raise Failed(f"a change is let in: {answer.status_code} {answer.text[:500]}")

    def is_back(self) -> None:
        resumed = datetime.now(UTC)
        self._jobs_are_back()
        self._runs_are_back()
        new_run = self._api.run_now(self._ids["large"])
        run = self._api.ended({**new_run, "job_id": self._ids["large"]}, WITHIN)
        if run["status"] != "SUCCESS" or self._large_calls() != 1:
            raise Failed(f"a job of that moment does not run with its payload: {run}")
        self._ran("due meanwhile")
        eventually(partial(self._ran_since, resumed), WITHIN)
        self._each_once()

    def _jobs_are_back(self) -> None:
        if self._api("GET", f"/jobs/{self._lost}").status_code != 404:
            raise Failed("a job that was made after the moment is there")
        names = {
            name: self._api.get(f"/jobs/{job_id}")["name"] for name, job_id in self._ids.items()
        }
        if names != {name: name for name in names}:
            raise Failed(f"jobs are not as they were: {names}")
        large = self._api.get(f"/jobs/{self._ids['large']}")
        if (large["status"], large["payload"]) != ("SCHEDULED", LARGE):
            raise Failed(f"a job that was cancelled after the moment is {large['status']}")

    def _runs_are_back(self) -> None:
        for run_id, former in self._runs.items():
            run = self._api.run(former["job_id"], run_id)
            if run != former:
                raise Failed(f"a run is not as it was: {run}, not {former}")
        if self._api.output(self._ran("done")) != self._output:
            raise Failed("the output of a run is not as it was")

    def _ran(self, name: str) -> Json:
        """Return the first successful run of a job."""
        return eventually(partial(self._api.runs, self._ids[name], status="SUCCESS"), WITHIN)[0]

    def _large_calls(self) -> int:
        path = self._api.get(f"/jobs/{self._ids['large']}")["task"]["url"].rpartition("/echo")[2]
        return len(self._target.of(f"/echo{path}"))

    def _ran_since(self, moment: datetime) -> bool:
        return any(
            instant(run["scheduled_time"]) > moment
            for run in self._api.runs(self._ids["each second"], status="SUCCESS")
        )

    def _each_once(self) -> None:
        times = [
            instant(run["scheduled_time"])
            for run in self._api.runs(self._ids["each second"], trigger="SCHEDULE")
        ]
        if len(set(times)) != len(times) or min(times) > max(times) - timedelta(seconds=2):
            raise Failed(f"occurrences of each second are not there once: {times}")
