"""AWS faults between two calls of a function: crashes, throttling, lost answers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from botocore.exceptions import ReadTimeoutError

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import key_of


class Killed(BaseException):
    """The environment is gone, out of time or memory. The function cannot catch this."""


class Moment(NamedTuple):
    """A call about to be made, or just answered."""

    number: int
    role: str
    service: str
    operation: str
    answered: bool
    job_id: str = ""  # of a job state that the call writes, if any


def _written_job(params: Mapping[str, Any]) -> str:
    """Return the id of the job with the state that an update writes."""
    key = params.get("Key", {})
    if key.get(keys.SK, {}).get("S") != keys.STATE_SORT_KEY:
        return ""
    return keys.parse_state_key(key_of(key))[1]


class Refusal(NamedTuple):
    """An error that AWS answers without an effect."""

    code: str
    status: int = 400


Plan = Callable[[Moment], Refusal | BaseException | None]


class _Http(NamedTuple):
    status_code: int


LOST = ReadTimeoutError(endpoint_url="https://aws.invalid")


class Faults:
    """Applies `plan` at each moment. Without a plan no fault occurs."""

    def __init__(self, role: Callable[[], str]) -> None:
        self.plan: Plan | None = None
        self.moments: list[Moment] = []
        self._role = role

    def watch(self, client: Any) -> None:
        client.meta.events.register_first("before-call.*.*", self._asked)
        client.meta.events.register_last("after-call.*.*", self._answered)

    def _asked(self, model: Any, context: Any, **_: Any) -> Any:
        return self._strike(model, context, answered=False)

    def _answered(self, model: Any, context: Any, **_: Any) -> None:
        self._strike(model, context, answered=True)

    def _strike(self, model: Any, context: Any, answered: bool) -> Any:
        moment = Moment(
            len(self.moments),
            self._role(),
            model.service_model.service_name,
            model.name,
            answered,
            _written_job(context["metered"])
            if model.service_model.service_name == "dynamodb"
            else "",
        )
        self.moments.append(moment)
        blow = None if self.plan is None else self.plan(moment)
        if isinstance(blow, BaseException):
            raise blow
        if blow is not None:
            assert not answered, "an answered call cannot be refused"
            error = {"Code": blow.code, "Message": "planted"}
            about = {"HTTPStatusCode": blow.status}
            return _Http(blow.status), {"Error": error, "ResponseMetadata": about}
        return None
