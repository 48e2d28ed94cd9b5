"""Authorizer of the HTTP API: return the tenant and role of a token."""

import json
import os
import sys
from functools import partial
from time import monotonic, sleep, time
from typing import Any

from punctual.aws.clients import Clients
from punctual.aws.deadline import Deadline
from punctual.aws.retries import RetryPolicy
from punctual.lambdas.authorizer.authenticator import deployed_door
from punctual.lambdas.authorizer.handler import SECONDS, Authorizer

_clients = Clients()
_clients.prepare("ssm")
_deadline = Deadline(monotonic)
_clients.watched(_deadline.watch)


def _problem(event: str, message: str) -> None:
    # A logger would double the time that this function takes to start.
    line = {"level": "ERROR", "service": "authorizer", "message": event}
    sys.stdout.write(json.dumps({**line, "error": message}) + "\n")


_patience = RetryPolicy(sleep, "authorizer", tries=1)
_not_noted = partial(_problem, "token_use_not_noted")
_door = deployed_door(os.environ, _clients, time, _patience, _not_noted)
_authorizer = Authorizer(_door, partial(_problem, "token_not_checked"))


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    with _deadline.within(SECONDS):
        return _authorizer.answer(event)
