"""The real handlers, loaded and called as in Lambda, each with its environment and log."""

import importlib.util
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.deployed.deployed import ACCOUNT, REGION, Function

FOLDERS = Path(__file__).parents[3] / "functions"


class Sink(io.TextIOBase):
    """Standard output of the running function. Loggers keep a reference, so there is only one."""

    def __init__(self) -> None:
        self._texts: list[list[str]] = [[]]

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._texts[-1].append(text)
        return len(text)

    @contextmanager
    def into(self, log: list[str]) -> Iterator[None]:
        """Redirect output to `log`. Another function may run inside and write its own log."""
        self._texts.append([])
        try:
            yield
        finally:
            log += "".join(self._texts.pop()).splitlines()


SINK = Sink()


@dataclass
class Context:
    """The context object that Lambda passes to a handler."""

    function_name: str
    aws_request_id: str
    memory_limit_in_mb: int
    invoked_function_arn: str
    function_version: str = "$LATEST"
    log_group_name: str = ""
    log_stream_name: str = "one"
    left: Callable[[], float] = lambda: 900.0

    def get_remaining_time_in_millis(self) -> int:
        return int(self.left() * 1000)


@dataclass
class Environment:
    """A warm function environment. Its module is loaded once."""

    function: Function
    handler: Callable[[Any, Any], Any] | None = None
    log: list[str] = field(default_factory=list)
    invocations: int = 0
    busy: bool = False

    def call(self, event: Any, left: Callable[[], float]) -> Any:
        self.invocations += 1
        if self.handler is None:
            self.handler = _load(self.function)
        # Events and answers pass through JSON, as over the network.
        answer = self.handler(json.loads(json.dumps(event)), self._context(left))
        return json.loads(json.dumps(answer))

    def die(self) -> None:
        self.handler = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        env = {
            **_kept(os.environ),
            **self.function.env,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_LAMBDA_FUNCTION_NAME": self.function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.function.memory),
            "LAMBDA_TASK_ROOT": str(FOLDERS),
            "POWERTOOLS_TRACE_DISABLED": "true",
        }
        with mock.patch.dict(os.environ, env, clear=True):
            yield

    def _context(self, left: Callable[[], float]) -> Context:
        return Context(
            self.function.name,
            f"{self.function.name}-request-{self.invocations}",
            self.function.memory,
            f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.function.name}",
            log_group_name=f"/aws/lambda/{self.function.name}",
            left=left,
        )


def _kept(env: Mapping[str, str]) -> dict[str, str]:
    wanted = ("PATH", "HOME", "TMPDIR", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    return {name: env[name] for name in wanted if name in env}


def folder_of(name: str, stage: str) -> Path:
    """Return the folder of a function, by the longest prefix of its name.

    `punctual-dev-executor-quick` is in `executor`.
    """
    rest = name.removeprefix(f"punctual-{stage}-").replace("-", "_")
    folders = [
        folder
        for folder in FOLDERS.iterdir()
        if rest == folder.name or rest.startswith(f"{folder.name}_")
    ]
    return max(folders, key=lambda folder: len(folder.name))


def _load(function: Function) -> Callable[[Any, Any], Any]:
    folder = folder_of(function.name, function.name.split("-")[1])
    module_name, _, entry = function.handler.rpartition(".")
    spec = importlib.util.spec_from_file_location(
        f"life_{folder.name}", folder / f"{module_name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: Callable[[Any, Any], Any] = getattr(module, entry)
    return handler
