"""The node as people run it, but that no task does anything: what is generated is never run.

Everything else is the real thing: the socket, the routes, the store, the engine. A script's code
and a call's address are taken, checked, kept and shown, and a stand-in answers in their place.
"""

import sys
from typing import Any

from punctual.node import main
from punctual.tasks.contract import Attempt, Outcome, Recorder, Stop


class Harmless:
    """Succeeds, or fails where the payload is false, null or empty."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def run(self, attempt: Attempt, stop: Stop, recorder: Recorder, /) -> Outcome:
        recorder.log(b"begun\n")
        if not attempt.payload:
            return Outcome.failed("there was nothing to do")
        return Outcome("SUCCESS", output=b"done", output_type="text/plain")

    def close(self) -> None:
        pass


if __name__ == "__main__":
    vars(main).update(ScriptTask=Harmless, HttpTask=Harmless)
    sys.exit(main.main())
