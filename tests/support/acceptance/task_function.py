"""The function that `lambda` tasks invoke where PUNCTUAL_TASK_FUNCTION names it.

It is deployed alone in the installation's account, with the handler `task_function.handler`.
"""

import time
from datetime import UTC, datetime
from typing import Any


def handler(payload: Any, _context: object) -> dict[str, Any]:
    """Return the payload. A payload may ask for a delay, or for failures until a time.

    The limit is a time and not a count, because each call may reach another environment.
    """
    request = payload if isinstance(payload, dict) else {}
    time.sleep(request.get("seconds", 0))
    fails_until = request.get("fails_until")
    if fails_until and datetime.now(UTC) < datetime.fromisoformat(fails_until):
        raise RuntimeError(request["message"])
    return {"sent": payload}
