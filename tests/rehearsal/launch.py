"""The emulator, mended where it keeps a deployment of ours from being rehearsed.

It runs in a virtualenv of its own, where none of our code is. What is mended, and why:
docs/decisions/rehearsal.md.
"""

import hashlib
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import iam_actions, lambda_runtime  # type: ignore[import-not-found]
from ministack.services import (  # type: ignore[import-not-found]
    apigateway,
    cloudwatch_logs,
    lambda_svc,
)
from ministack.services.cloudformation import provisioners  # type: ignore[import-not-found]

Props = Mapping[str, Any]
Handler = dict[str, Any]

BATCHES = {
    f"sqs:{action}Batch": f"sqs:{action}"
    for action in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility")
}
"""The actions that AWS asks for: there is no right to a batch."""


def as_on_aws(serial: Callable[..., int]) -> Callable[..., int]:
    """A mapping of a FIFO queue is served by as many as it allows, each with groups of its own."""

    def concurrency(mapping: Props, function: Props, config: Props, _queue: Any = None) -> int:
        return serial(mapping, function, config, None)

    return concurrency


def without_batches(extract: Callable[..., str | None]) -> Callable[..., str | None]:
    def action(*request: Any) -> str | None:
        found = extract(*request)
        return BATCHES.get(found, found) if found else found

    return action


def with_its_stage(proxy: Callable[..., Any]) -> Callable[..., Any]:
    """The path in an HTTP API's event begins with the stage, as in the address."""

    def invoke(integration: Props, api: str, stage: str, path: str, *rest: Any, **more: Any) -> Any:
        whole = path if stage == "$default" else f"/{stage}{path}"
        return proxy(integration, api, stage, whole, *rest, **more)

    return invoke


def as_routed(execute: Callable[..., Any]) -> Callable[..., Any]:
    """A browser that asks before it calls has no token: an authorizer of the route refuses it."""

    async def answer(
        api: str, stage: str, path: str, method: str, headers: Props, *rest: Any, **more: Any
    ) -> Any:
        shown = any(name.lower() == "authorization" for name in headers)
        if method == "OPTIONS" and not shown:
            asked = apigateway.route_authorization_type(api, stage, method, path)
            if asked not in (None, "NONE"):
                return apigateway._jwt_unauthorized()
        return await execute(api, stage, path, method, headers, *rest, **more)

    return answer


def in_the_apis_words(answer: Callable[..., Any]) -> Callable[..., Any]:
    """What CloudFormation names `AllowOrigins` is `allowOrigins` to what reads it."""

    def told(cors: Props, origin: str) -> Any:
        return answer({name[:1].lower() + name[1:]: said for name, said in cors.items()}, origin)

    return told


def into_what_stands(write: Callable[..., None]) -> Callable[..., None]:
    """No role of ours may make a log group: what a function says after its own is gone is lost."""

    def emit(function: Props, *rest: Any, **more: Any) -> None:
        config = function.get("config") or function
        chosen = (config.get("LoggingConfig") or {}).get("LogGroup")
        if (chosen or f"/aws/lambda/{config.get('FunctionName')}") in cloudwatch_logs._log_groups:
            write(function, *rest, **more)

    return emit


class Unpacked(zipfile.ZipFile):
    """A layer is unpacked once, not for each environment: they are some thousand files."""

    _alone = threading.Lock()

    def extractall(self, path: Any = None, members: Any = None, pwd: Any = None) -> None:
        place = Path(path)
        if not place.name.startswith("layer_"):
            super().extractall(path, members, pwd)
            return
        digest = hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()[:16]
        kept = Path(tempfile.gettempdir()) / f"unpacked-{digest}"
        with self._alone:
            if not kept.is_dir():
                super().extractall(kept)
        place.rmdir()
        place.symlink_to(kept)


def taken(handlers: dict[str, Handler], kind: str, where: Callable[[Props], bool]) -> None:
    """Resources of a kind, some or all, are taken into the stack and do nothing."""
    known = handlers.get(kind, {})

    def create(logical_id: str, props: Props, stack: str) -> Any:
        if where(props):
            return f"{stack}-{logical_id}", {"Arn": f"arn:aws:taken:::{stack}-{logical_id}"}
        return known["create"](logical_id, props, stack)

    def update(physical_id: str, old: Props, new: Props, stack: str, logical_id: str = "") -> Any:
        if where(new):
            return physical_id, {}
        return known["update"](physical_id, old, new, stack, logical_id)

    def delete(physical_id: str, props: Props) -> None:
        if not where(props):
            known["delete"](physical_id, props)

    own = {"create": create, "update": update, "delete": delete, "update_with_logical_id": True}
    handlers[kind] = {**known, **own}


lambda_svc._sqs_esm_concurrency = as_on_aws(lambda_svc._sqs_esm_concurrency)
lambda_svc._emit_lambda_logs = into_what_stands(lambda_svc._emit_lambda_logs)
iam_actions.extract_iam_action = without_batches(iam_actions.extract_iam_action)
apigateway._invoke_lambda_proxy = with_its_stage(apigateway._invoke_lambda_proxy)
apigateway._handle_execute_in_scope = as_routed(apigateway._handle_execute_in_scope)
apigateway._cors_response_headers = in_the_apis_words(apigateway._cors_response_headers)
apigateway._cors_preflight_response = in_the_apis_words(apigateway._cors_preflight_response)
lambda_runtime.Worker._drain_stderr_bounded.__defaults__ = (0.002, 0.001, 0.25)  # 50 ms a call else
lambda_runtime.zipfile = SimpleNamespace(
    ZipFile=Unpacked,
    BadZipFile=zipfile.BadZipFile,
    LargeFileError=zipfile.LargeZipFile,
)
taken(provisioners._RESOURCE_HANDLERS, "AWS::Logs::QueryDefinition", lambda _props: True)
taken(provisioners._RESOURCE_HANDLERS, "AWS::CloudWatch::Alarm", lambda props: "Metrics" in props)
app._port_is_bindable = lambda *_place: False  # it would open 443 as well
app.main()
