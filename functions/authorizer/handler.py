"""HTTP API: whose a token is, for the functions behind it to refuse or to serve."""

import json
import os
import sys
from functools import partial
from time import sleep, time
from typing import Any

from punctual.aws.calls import Patience
from punctual.aws.clients import Clients
from punctual.serverless.authorizing import Authorizer
from punctual.serverless.door import deployed_door

_clients = Clients()
_clients.prepare("ssm")


def _problem(event: str, message: str) -> None:
    # A logger would double this function's start; one line like its lines is enough.
    line = {"level": "ERROR", "service": "authorizer", "message": event}
    sys.stdout.write(json.dumps({**line, "error": message}) + "\n")


_door = deployed_door(
    os.environ,
    _clients,
    time,
    Patience(sleep, "authorizer", tries=1),
    partial(_problem, "token_use_not_noted"),
)
_authorizer = Authorizer(_door, partial(_problem, "token_not_checked"))


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    return _authorizer.answer(event)
