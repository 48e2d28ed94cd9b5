"""The emulator with patches that a deployment of ours needs.

It runs in its own virtualenv without our code. docs/decisions/0028-simulation-and-rehearsal.md
gives the reason of each patch.
"""

import hashlib
import json
import tempfile
import threading
import time
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import process_engine  # type: ignore[import-not-found]
from ministack import app  # type: ignore[import-not-found]
from ministack.core import (  # type: ignore[import-not-found]
    iam_actions,
    iam_evaluator,
    lambda_runtime,
)
from ministack.services import (  # type: ignore[import-not-found]
    apigateway,
    cloudwatch_logs,
    dynamodb,
    ecs,
    eventbridge,
    lambda_svc,
    ssm,
)
from ministack.services.cloudformation import provisioners  # type: ignore[import-not-found]

TENANT_HEADER = "x-amz-tenant-id"
TENANT_FUNCTION = "-script-"  # in the name of a function with environments by tenant
tenant_of_call: ContextVar[str] = ContextVar("tenant_of_call", default="")

Props = Mapping[str, Any]
Handler = dict[str, Any]

BATCHES = {
    f"sqs:{action}Batch": f"sqs:{action}"
    for action in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility")
}
"""IAM has no actions for batches. It checks these instead."""


def with_allowed_concurrency(serial: Callable[..., int]) -> Callable[..., int]:
    """Serve a FIFO mapping with its allowed concurrency, each with its own message groups."""

    def concurrency(mapping: Props, function: Props, config: Props, _queue: Any = None) -> int:
        return serial(mapping, function, config, None)

    return concurrency


def without_batches(extract: Callable[..., str | None]) -> Callable[..., str | None]:
    def action(*request: Any) -> str | None:
        action_name = extract(*request)
        return BATCHES.get(action_name, action_name) if action_name else action_name

    return action


def with_stage_in_path(proxy: Callable[..., Any]) -> Callable[..., Any]:
    """Begin the path of an HTTP API event with the stage, as the address does."""

    def invoke(integration: Props, api: str, stage: str, path: str, *args: Any, **more: Any) -> Any:
        full_path = path if stage == "$default" else f"/{stage}{path}"
        return proxy(integration, api, stage, full_path, *args, **more)

    return invoke


def with_route_authorization(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a preflight request without a token if its route has an authorizer."""

    async def answer(
        api: str, stage: str, path: str, method: str, headers: Props, *args: Any, **more: Any
    ) -> Any:
        has_token = any(name.lower() == "authorization" for name in headers)
        if method == "OPTIONS" and not has_token:
            authorization = apigateway.route_authorization_type(api, stage, method, path)
            if authorization not in (None, "NONE"):
                return apigateway._jwt_unauthorized()
        return await execute(api, stage, path, method, headers, *args, **more)

    return answer


def with_api_names(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Rename CORS settings from CloudFormation's `AllowOrigins` to `allowOrigins`."""

    def headers(cors: Props, origin: str) -> Any:
        return answer({name[:1].lower() + name[1:]: value for name, value in cors.items()}, origin)

    return headers


def into_existing_groups(write: Callable[..., None]) -> Callable[..., None]:
    """Drop logs without an existing log group, because no role of ours may create one."""

    def emit(function: Props, *args: Any, **more: Any) -> None:
        config = function.get("config") or function
        chosen = (config.get("LoggingConfig") or {}).get("LogGroup")
        if (chosen or f"/aws/lambda/{config.get('FunctionName')}") in cloudwatch_logs._log_groups:
            write(function, *args, **more)

    return emit


def for_one_tenant(invoke: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Demand the tenant of a call to a function that has environments by tenant, as AWS does."""

    async def invoked(name: str, event: Any, headers: Props, *args: Any, **more: Any) -> Any:
        lowered = {str(key).lower(): value for key, value in headers.items()}
        tenant = lowered.get(TENANT_HEADER, "")
        if (TENANT_FUNCTION in name) != bool(tenant):
            why = "TenantId is required for, and only for, a function with tenant isolation."
            return lambda_svc.error_response_json("InvalidParameterValueException", why, 400)
        tenant_of_call.set(tenant)
        return await invoke(name, event, headers, *args, **more)

    return invoked


def by_tenant(key_of: Callable[..., str]) -> Callable[..., str]:
    """Keep the environments of a function apart by tenant."""

    def key(name: str, config: Props, qualifier: str) -> str:
        tenant = tenant_of_call.get() if TENANT_FUNCTION in name else ""
        return key_of(name, config, f"{qualifier}@{tenant}" if tenant else qualifier)

    return key


def until_retired(invoke: Callable[..., Handler]) -> Callable[..., Handler]:
    """End the environment of a script after a run that the runner does not vouch for.

    On AWS the runner itself ends its process. Here the process has no runtime API to answer to. The
    answer of a detached run does not tell, so it always ends the environment.
    """

    def invoked(worker: Any, *args: Any, **more: Any) -> Handler:
        response = invoke(worker, *args, **more)
        answer = response.get("result")
        if TENANT_FUNCTION not in worker.func_name or not isinstance(answer, dict):
            return response
        if answer.get("must_retire") or answer.get("status") == "DETACHED":
            process, worker._proc = worker._proc, None
            lambda_runtime._signal(process)
            lambda_runtime._collect(process, time.monotonic() + lambda_runtime._REAP_GRACE)
        return response

    return invoked


def from_nearest_backup(restore: Callable[[Handler], Any]) -> Callable[[Handler], Any]:
    """Restore a table from its newest backup before the time, not from its current rows."""

    def restored(request: Handler) -> Any:
        before = [
            (created_at, arn)
            for created_at, arn in _backups_of(request["SourceTableName"])
            if created_at <= request["RestoreDateTime"]
        ]
        if not before:
            why = "no backup is as old as this moment"
            return dynamodb.error_response_json("InvalidRestoreTimeException", why, 400)
        return restore({"TargetTableName": request["TargetTableName"], "BackupArn": max(before)[1]})

    return restored


def with_backup_window(describe: Callable[[Handler], Any]) -> Callable[[Handler], Any]:
    """Report the oldest backup as the start of the recovery window."""

    def described(request: Handler) -> Any:
        status, headers, body = describe(request)
        backups = _backups_of(request["TableName"])
        description = json.loads(body)
        recovery = description.get("ContinuousBackupsDescription", {}).get(
            "PointInTimeRecoveryDescription", {}
        )
        if "EarliestRestorableDateTime" not in recovery or not backups:
            return status, headers, body
        recovery["EarliestRestorableDateTime"] = min(backups)[0]
        return status, headers, json.dumps(description).encode()

    return described


def _backups_of(table: str) -> list[tuple[float, str]]:
    return [
        (backup["BackupDetails"]["BackupCreationDateTime"], arn)
        for arn, backup in dynamodb._backups.items()
        if backup["SourceTableDetails"]["TableName"] == table
    ]


def add_point_in_time_recovery(handlers: dict[str, Handler]) -> None:
    """Apply a template's point-in-time recovery setting to its table."""
    known = handlers["AWS::DynamoDB::Table"]

    def create(logical_id: str, props: Props, stack: str) -> Any:
        name, attributes = known["create"](logical_id, props, stack)
        recovery = props.get("PointInTimeRecoverySpecification")
        if recovery:
            spec = {"PointInTimeRecoverySpecification": recovery}
            dynamodb._update_continuous_backups({"TableName": name, **spec})
        return name, attributes

    handlers["AWS::DynamoDB::Table"] = {**known, "create": create}


def add_concurrency_limit(handlers: dict[str, Handler]) -> None:
    """Check the reserved concurrency of a stack against the account, which keeps 100 unreserved."""
    known = handlers["AWS::Lambda::Function"]
    functions, wanted_as = lambda_svc._functions, "ReservedConcurrentExecutions"

    def reserve(name: str, requested: Any) -> None:
        others = (function for known_as, function in functions.items() if known_as != name)
        reserved = sum(int(function.get("concurrency") or 0) for function in others)
        if requested and lambda_svc._ACCOUNT_CONCURRENCY_CAP - reserved - int(requested) < 100:
            raise ValueError(
                "Specified ReservedConcurrentExecutions for function decreases account's "
                "UnreservedConcurrentExecution below its minimum value of [100]."
            )
        functions[name]["concurrency"] = int(requested) if requested else None

    def create(logical_id: str, props: Props, stack: str) -> Any:
        name, attributes = known["create"](logical_id, props, stack)
        try:
            reserve(name, props.get(wanted_as))
        except ValueError:
            known["delete"](name, props)
            raise
        return name, attributes

    def update(physical_id: str, old: Props, new: Props, stack: str, logical_id: str = "") -> Any:
        updated = known["update"](physical_id, old, new, stack, logical_id)
        if old.get(wanted_as) != new.get(wanted_as):
            reserve(physical_id, new.get(wanted_as))
        return updated

    own = {"create": create, "update": update, "update_with_logical_id": True}
    handlers["AWS::Lambda::Function"] = {**known, **own}


class CachedZipFile(zipfile.ZipFile):
    """Unpack a layer once instead of once for each environment. It has some thousand files."""

    _alone = threading.Lock()

    def extractall(self, path: Any = None, members: Any = None, pwd: Any = None) -> None:
        place = Path(path)
        if not place.name.startswith("layer_"):
            super().extractall(path, members, pwd)
            return
        digest = hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()[:16]
        cached = Path(tempfile.gettempdir()) / f"unpacked-{digest}"
        with self._alone:
            if not cached.is_dir():
                super().extractall(cached)
        place.rmdir()
        place.symlink_to(cached)


def accept_silently(
    handlers: dict[str, Handler], kind: str, where: Callable[[Props], bool]
) -> None:
    """Accept resources of a kind, filtered by `where`, without creating them."""
    known = handlers.get(kind, {})

    def create(logical_id: str, props: Props, stack: str) -> Any:
        if where(props):
            return f"{stack}-{logical_id}", {"Arn": f"arn:aws:taken:::{stack}-{logical_id}"}
        return known["create"](logical_id, props, stack)

    def update(physical_id: str, old: Props, new: Props, stack: str, logical_id: str = "") -> Any:
        if where(new):
            return physical_id, {"Arn": f"arn:aws:taken:::{physical_id}"}
        return known["update"](physical_id, old, new, stack, logical_id)

    def delete(physical_id: str, props: Props) -> None:
        if not where(props):
            known["delete"](physical_id, props)

    own = {"create": create, "update": update, "delete": delete, "update_with_logical_id": True}
    handlers[kind] = {**known, **own}


lambda_svc._sqs_esm_concurrency = with_allowed_concurrency(lambda_svc._sqs_esm_concurrency)
lambda_svc._invoke = for_one_tenant(lambda_svc._invoke)
lambda_runtime._worker_key = by_tenant(lambda_runtime._worker_key)
lambda_runtime.Worker.invoke = until_retired(lambda_runtime.Worker.invoke)
lambda_svc._emit_lambda_logs = into_existing_groups(lambda_svc._emit_lambda_logs)
iam_actions.extract_iam_action = without_batches(iam_actions.extract_iam_action)
apigateway._invoke_lambda_proxy = with_stage_in_path(apigateway._invoke_lambda_proxy)
apigateway._handle_execute_in_scope = with_route_authorization(apigateway._handle_execute_in_scope)
apigateway._cors_response_headers = with_api_names(apigateway._cors_response_headers)
apigateway._cors_preflight_response = with_api_names(apigateway._cors_preflight_response)
lambda_runtime.Worker._drain_stderr_bounded.__defaults__ = (0.002, 0.001, 0.25)  # else 50 ms a call
lambda_runtime.zipfile = SimpleNamespace(
    ZipFile=CachedZipFile,
    BadZipFile=zipfile.BadZipFile,
    LargeFileError=zipfile.LargeZipFile,
)
dynamodb._restore_table_to_point_in_time = from_nearest_backup(dynamodb._restore_table_from_backup)
dynamodb._describe_continuous_backups = with_backup_window(dynamodb._describe_continuous_backups)
add_point_in_time_recovery(provisioners._RESOURCE_HANDLERS)
add_concurrency_limit(provisioners._RESOURCE_HANDLERS)
accept_silently(provisioners._RESOURCE_HANDLERS, "AWS::Logs::QueryDefinition", lambda _props: True)
accept_silently(
    provisioners._RESOURCE_HANDLERS, "AWS::CloudWatch::Alarm", lambda props: "Metrics" in props
)
process_engine.install(ecs, eventbridge, ssm, iam_actions, iam_evaluator)
app._port_is_bindable = lambda *_place: False  # otherwise it opens port 443 as well
app.main()
