"""Carry out one run in a process of its own: in a container, or in a test.

`PUNCTUAL_RUN_URL` says where the event of the run is: `https://…` or `file:///…`. Arguments are the
command of the container's image. In mode `wait` the answer goes to standard output.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from punctual.runner.claim_client import RETRIED_STATUSES, Repeater
from punctual.runner.container_command import RUN_URL_VARIABLE
from punctual.runner.environment import RunnerEnvironment
from punctual.runner.event import UnreadableEvent, read_event
from punctual.runner.http_client import CallFailed, HttpRequest
from punctual.runner.session import UNREPORTED_EXIT_CODE, Session
from punctual.runner.wiring import process_environment, remove_runs_folder

EVENT_CALL_SECONDS = 20.0
EVENT_SECONDS = 60.0  # of all tries
USAGE_EXIT_CODE = 64


def main() -> None:
    environment = process_environment(os.environ, tuple(sys.argv[1:]))
    try:
        sys.exit(_run(environment))
    finally:
        remove_runs_folder(environment)


def _run(environment: RunnerEnvironment) -> int:
    try:
        event = read_event(_load_event(environment), environment.variables)
    except (CallFailed, OSError, ValueError) as error:
        print(f"The runner cannot read its event: {error}", file=sys.stderr)
        return USAGE_EXIT_CODE
    session = Session(event, environment)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: session.request_shutdown())
    end = session.run()
    if event.mode == "wait":
        print(json.dumps(end.answer), flush=True)
    elif end.exit_code == UNREPORTED_EXIT_CODE and not session.is_lost:
        print("The runner could not report how the run ended", file=sys.stderr)
    return end.exit_code


def _load_event(environment: RunnerEnvironment) -> Mapping[str, Any]:
    url = environment.variables.get(RUN_URL_VARIABLE, "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            data = file.read()
    elif url:
        clock = environment.clock
        deadline = clock.monotonic() + EVENT_SECONDS
        repeater = Repeater(clock.monotonic, clock.wait)
        data = repeater.until(lambda: deadline, lambda: _download_event(environment, url))
    else:
        raise UnreadableEvent(f"{RUN_URL_VARIABLE} is not set")
    event = json.loads(data)
    if not isinstance(event, dict):
        raise UnreadableEvent("the event must be a JSON object")
    return event


def _download_event(environment: RunnerEnvironment, url: str) -> bytes:
    answer = environment.http.call(HttpRequest("GET", url), EVENT_CALL_SECONDS)
    if answer.status in RETRIED_STATUSES:
        raise CallFailed(f"HTTP {answer.status}")
    if not answer.is_success:
        raise UnreadableEvent(f"HTTP {answer.status}")
    return answer.body


if __name__ == "__main__":
    main()
