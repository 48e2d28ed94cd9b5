"""Runs the containers of the emulator as processes on this machine, in place of Docker.

The emulator starts containers by a client of Docker. This client knows some images by name, each as
the words before the command: its entry point. It adds what the emulator's ECS lacks: one task for
one client token, the grace of a stop, and the events of state changes.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

IMAGES_VARIABLE = "REHEARSAL_IMAGES"  # JSON: the entry point of each image
STOP_GRACE_SECONDS = 30.0  # as in our task definitions
LOG_POLL_SECONDS = 0.1
PASSED_VARIABLES = ("PATH", "SSL_CERT_FILE", "TMPDIR")
SIGNAL_EXIT_CODE = 128
STOP_REASON = "_stop_reason"  # the emulator shows no field that begins with _

Task = dict[str, Any]
cluster_of_call: ContextVar[str] = ContextVar("cluster_of_call", default="")


class ImageNotFound(Exception):
    """No image of this name is known."""


class ProcessContainer:
    """A process with the part of a container's interface that the emulator uses."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.id = uuid.uuid4().hex
        self.attrs: Mapping[str, Any] = {"NetworkSettings": {"Networks": {}}}
        folder = Path(tempfile.mkdtemp(prefix="container-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._log = folder / "log"
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        with self._log.open("wb") as output:
            # In the group of the emulator, so that no process outlives it.
            self._process = subprocess.Popen(
                [*words],
                cwd=folder,
                env={**passed, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def reload(self) -> None:
        """Do nothing: the status is always that of the process."""

    @property
    def status(self) -> str:
        return "running" if self._process.poll() is None else "exited"

    def wait(self) -> Mapping[str, int]:
        code = self._process.wait()
        return {"StatusCode": code if code >= 0 else SIGNAL_EXIT_CODE - code}

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace."""
        self._process.terminate()
        timer = threading.Timer(STOP_GRACE_SECONDS, self._process.kill)
        timer.daemon = True
        timer.start()

    def stop(self, timeout: float = STOP_GRACE_SECONDS) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def remove(self, **_options: Any) -> None:
        self._process.kill()

    def logs(self, **_options: Any) -> Iterator[bytes]:
        """Yield what the process prints, until it ends."""
        with self._log.open("rb") as log:
            while True:
                has_ended = self.status == "exited"
                data = log.read()
                if data:
                    yield data
                elif has_ended:
                    return
                else:
                    time.sleep(LOG_POLL_SECONDS)


class ProcessEngine:
    """A client of Docker that knows the images of the rehearsal."""

    def __init__(self, entry_points: Mapping[str, Sequence[str]]) -> None:
        self._entry_points = entry_points
        self._containers: dict[str, ProcessContainer] = {}

    @property
    def containers(self) -> "ProcessEngine":
        return self

    def get(self, container_id: str) -> ProcessContainer:
        return self._containers[container_id]

    def list(self, **_options: Any) -> Sequence[ProcessContainer]:
        return ()  # nothing is abandoned: the processes end with the emulator

    def run(self, image: str, **options: Any) -> ProcessContainer:
        if image not in self._entry_points:
            raise ImageNotFound(f"pull access denied for {image}")
        words = [*self._entry_points[image], *(options.get("command") or ())]
        container = ProcessContainer(words, options.get("environment") or {})
        self._containers[container.id] = container
        return container


def install(ecs: Any, eventbridge: Any, ssm: Any, iam_actions: Any, iam_evaluator: Any) -> None:
    """Let the emulator's ECS run processes, send events, and check rights as AWS does."""
    # ECS decrypts the secrets of a container.
    ssm.resolve_parameter_value = partial(ssm.resolve_parameter_value, decrypt=True)
    engine = ProcessEngine(json.loads(os.environ.get(IMAGES_VARIABLE, "{}")))
    ecs._get_docker = lambda: engine
    ecs._ACTION_MAP["RunTask"] = _once_for_each_token(ecs._run_task)
    ecs._ACTION_MAP["StopTask"] = _with_grace(ecs, engine)
    for name in ("_mark_task_running", "_mark_task_stopped"):
        setattr(ecs, name, _with_event(getattr(ecs, name), ecs._sanitize, eventbridge))
    iam_actions.extract_resource_arn = _with_tasks(iam_actions.extract_resource_arn)
    iam_evaluator._resolve_condition_key = _with_cluster(iam_evaluator._resolve_condition_key)


def _once_for_each_token(run_task: Callable[[Task], Any]) -> Callable[[Task], Any]:
    """Answer a repeated client token with its first answer."""
    answers: dict[str, Any] = {}
    alone = threading.Lock()

    def run(request: Task) -> Any:
        token = request.get("clientToken", "")
        with alone:
            if token not in answers:
                answers[token] = run_task(request)
            return answers[token]

    return run


def _with_grace(ecs: Any, engine: ProcessEngine) -> Callable[[Task], Any]:
    """Send SIGTERM first. The watcher of the task then sees its end."""
    stop_task = ecs._stop_task

    def stop(request: Task) -> Any:
        task = ecs._tasks.get(request["task"])
        if task is None or task["lastStatus"] != "RUNNING" or not task.get("_docker_ids"):
            return stop_task(request)
        if STOP_REASON not in task:
            task[STOP_REASON] = request.get("reason", "")
            for container_id in task["_docker_ids"]:
                engine.get(container_id).ask_to_stop()
        return ecs.json_response({"task": ecs._sanitize(task)})

    return stop


def _with_event(
    mark: Callable[..., bool], shown: Callable[[Task], Task], eventbridge: Any
) -> Callable[..., bool]:
    """Send the event of a state change. The end of a stopped task names its reason."""

    def marked(task_arn: str, task: Task, *words: str, **options: Any) -> bool:
        if STOP_REASON in task and len(words) == 2:
            words = (task[STOP_REASON], "UserInitiated")
        if not mark(task_arn, task, *words, **options):
            return False
        entry = {
            "Source": "aws.ecs",
            "DetailType": "ECS Task State Change",
            "Detail": json.dumps(shown(task)),
            "Resources": [task_arn],
        }
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)
        return True

    return marked


def _with_tasks(extract: Callable[..., str]) -> Callable[..., str]:
    """Return the resource of a call as AWS names it: a definition or a task, and a log stream."""

    def resource(
        service: str, method: str, path: str, headers: Any, body: bytes, *more: Any
    ) -> str:
        request: Any = json.loads(body or b"{}") if service in ("ecs", "logs") else {}
        if "logStreamName" in request:
            group: str = extract(service, method, path, headers, body, *more)
            return f"{group}:log-stream:{request['logStreamName']}"
        if service == "ecs":
            cluster_of_call.set(request.get("cluster", ""))
            names = [request.get("taskDefinition"), request.get("task"), *request.get("tasks", ())]
            named = next((name for name in names if name), "")
            if "cluster" in request and named.startswith("arn:"):
                return str(named)
        return extract(service, method, path, headers, body, *more)

    return resource


def _with_cluster(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Know the condition key of ECS that names the cluster of a call."""

    def resolved(key: str, context: Any) -> Any:
        if key.lower() == "ecs:cluster":
            return cluster_of_call.get() or None
        return resolve(key, context)

    return resolved
