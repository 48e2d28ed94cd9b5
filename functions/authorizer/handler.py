"""Authorizer of the HTTP API: return the tenant and role of a token."""

import json
import os
import sys
from functools import partial
from time import monotonic, sleep, time
from typing import Any

from punctual.aws.clients import Clients
from punctual.aws.retries import Deadline, RetryPolicy
from punctual.lambdas.authorizer.authenticator import build_authenticator
from punctual.lambdas.authorizer.handler import AUTHORIZER_TIME_LIMIT_SECONDS, Authorizer

_clients = Clients()
_clients.prepare("ssm")
_deadline = Deadline(monotonic)
_clients.add_observer(_deadline.attach_to)


def _log_problem(event: str, message: str) -> None:
    # A logger would double the time that this function takes to start.
    line = {"level": "ERROR", "service": "authorizer", "message": event}
    sys.stdout.write(json.dumps({**line, "error": message}) + "\n")


_retry_policy = RetryPolicy(sleep, "authorizer", tries=1)
_log_use_not_noted = partial(_log_problem, "token_use_not_noted")
_authenticator = build_authenticator(os.environ, _clients, time, _retry_policy, _log_use_not_noted)
_authorizer = Authorizer(_authenticator, partial(_log_problem, "token_not_checked"))


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    with _deadline.within(AUTHORIZER_TIME_LIMIT_SECONDS):
        return _authorizer.authorize(event)
