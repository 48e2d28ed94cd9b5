"""HTTP API: who calls, by an admin token, for the functions behind it to refuse or to serve."""

import json
import os
import sys
from time import time
from typing import Any

from punctual.aws.clients import Clients
from punctual.aws.parameters import Parameter
from punctual.serverless.authorizing import Authorizer

_clients = Clients()
_clients.prepare("ssm")
_parameter = Parameter(lambda: _clients.ssm, os.environ["PUNCTUAL_TOKEN_PARAMETER"])


def _problem(message: str) -> None:
    # A logger would double this function's start; one line like its lines is enough.
    line = {"level": "ERROR", "service": "authorizer", "message": "token_not_checked"}
    sys.stdout.write(json.dumps({**line, "error": message}) + "\n")


_authorizer = Authorizer(_parameter.read, time, _problem)


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    return _authorizer.answer(event)
