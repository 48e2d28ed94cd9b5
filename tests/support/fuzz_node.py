"""The node with tasks that do nothing, so generated jobs cannot do harm.

The socket, the routes, the store and the engine are real. Scripts and HTTP tasks are checked,
stored and shown, but a stand-in runs in their place.
"""

import sys
from typing import Any

from punctual.node import main
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest


class Harmless:
    """A task that succeeds, or fails if the payload is false, null or empty."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        recorder.log(b"begun\n")
        if not attempt.payload:
            return Outcome.failed("there was nothing to do")
        return Outcome("SUCCESS", output=b"done", output_type="text/plain")

    def close(self) -> None:
        pass


if __name__ == "__main__":
    vars(main).update(ScriptTask=Harmless, HttpTask=Harmless)
    sys.exit(main.main())
