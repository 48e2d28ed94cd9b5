"""The function that `lambda` tasks invoke where PUNCTUAL_TASK_FUNCTION names it.

It stands by itself in the account of the installation, with the handler `task_function.handler`.
"""

import time
from datetime import UTC, datetime
from typing import Any


def handler(payload: Any, _context: object) -> dict[str, Any]:
    """Answers with what it was sent; a payload may ask it to take its time, or to fail for a while.

    A moment, and no count, says until when it fails: nobody knows which environment is called.
    """
    asked = payload if isinstance(payload, dict) else {}
    time.sleep(asked.get("seconds", 0))
    fails_until = asked.get("fails_until")
    if fails_until and datetime.now(UTC) < datetime.fromisoformat(fails_until):
        raise RuntimeError(asked["message"])
    return {"sent": payload}
