"""The bodies of the calls by claim, and their checks."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from pydantic import Field

from punctual.domain.run import Progress
from punctual.engine.execution.claims import ClaimFinish, ClaimRenewal
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE, TEXT_CONTENT_TYPE
from punctual.web.http.json_body import JsonBody
from punctual.web.models.bodies import BodyReader
from punctual.web.models.schedule import StrictModel

MAX_CLAIMS = 500
MAX_RUNNER_ID_CHARACTERS = 64
MAX_LOG_PIECE_BYTES = 1024 * 1024  # of the log text of one call
MAX_CLAIM_LOG_OFFSET = 2**40
MAX_CLAIM_OUTPUT_BYTES = 256 * 1024
MAX_UPLOAD_BYTES = 5 * 1024**3  # the most that one PUT of S3 takes
MAX_UPLOAD_TYPE_CHARACTERS = 128
MAX_ERROR_MESSAGE_CHARACTERS = 8_192
MAX_PROGRESS_CHARACTERS = 256
MAX_EXIT_CODE = 2**31 - 1
_OUTPUT_FIELDS = ("output", "output_text", "output_upload")

RunnerId = Annotated[str, Field(pattern=r"^[!-~]{1,64}$", max_length=MAX_RUNNER_ID_CHARACTERS)]
LogOffset = Annotated[int, Field(ge=0, le=MAX_CLAIM_LOG_OFFSET)]
ContentType = Annotated[
    str, Field(pattern=r"^[ -~]+$", min_length=1, max_length=MAX_UPLOAD_TYPE_CHARACTERS)
]
Item = TypeVar("Item")


class ProgressFields(StrictModel):
    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    text: Annotated[str, Field(max_length=MAX_PROGRESS_CHARACTERS)] | None = None


class RenewalFields(StrictModel):
    claim: str
    runner_id: RunnerId | None = None
    started_at: str | None = None
    progress: ProgressFields | None = None
    log: str | None = None
    log_offset: LogOffset | None = None


class FinishFields(StrictModel):
    claim: str
    runner_id: RunnerId | None = None
    status: Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "RELEASED"]
    started_at: str | None = None
    output: Any = None
    output_text: str | None = None
    output_upload: str | None = None
    output_truncated: bool | None = None
    error_message: Annotated[str, Field(max_length=MAX_ERROR_MESSAGE_CHARACTERS)] | None = None
    retryable: bool | None = None
    exit_code: Annotated[int, Field(ge=-MAX_EXIT_CODE, le=MAX_EXIT_CODE)] | None = None
    log: str | None = None
    log_offset: LogOffset | None = None
    logs_truncated: bool | None = None


class ClaimRenewals(StrictModel):
    claims: Annotated[list[RenewalFields], Field(min_length=1, max_length=MAX_CLAIMS)]


class ClaimFinishes(StrictModel):
    claims: Annotated[list[FinishFields], Field(min_length=1, max_length=MAX_CLAIMS)]


class UploadFields(StrictModel):
    claim: str
    size: Annotated[int, Field(ge=1, le=MAX_UPLOAD_BYTES)]
    content_type: ContentType


class UploadRequest(NamedTuple):
    claim: str
    size: int
    content_type: str


def parse_renewals(body: JsonBody) -> list[ClaimRenewal]:
    return _parse_claims(ClaimRenewals, body, _renewal)


def parse_finishes(body: JsonBody) -> list[ClaimFinish]:
    return _parse_claims(ClaimFinishes, body, _finish)


def parse_upload(body: JsonBody) -> UploadRequest:
    reader = BodyReader()
    fields = reader.validated(UploadFields, body._replace(may_contain_nul=False))
    reader.finish()
    return UploadRequest(fields["claim"], fields["size"], fields["content_type"])


def _parse_claims(
    model: type[StrictModel],
    body: JsonBody,
    parse: Callable[[BodyReader, str, Mapping[str, Any]], Item],
) -> list[Item]:
    """Return all items of the body. A log may hold any character, also U+0000."""
    reader = BodyReader()
    fields = reader.validated(model, body._replace(may_contain_nul=False))
    reader.finish()
    items = [parse(reader, f"claims.{place}", item) for place, item in enumerate(fields["claims"])]
    reader.finish()
    return items


def _renewal(reader: BodyReader, path: str, item: Mapping[str, Any]) -> ClaimRenewal:
    return ClaimRenewal(
        claim=item["claim"],
        runner_id=item.get("runner_id") or "",
        has_started=reader.time(item, "started_at", path) is not None,
        log=_log_text(reader, path, item),
        log_offset=item.get("log_offset") or 0,
        progress=_progress(item.get("progress") or {}),
    )


def _progress(fields: Mapping[str, Any]) -> Progress | None:
    progress = Progress(fields.get("percent"), fields.get("text") or "")
    return None if progress == Progress() else progress


def _finish(reader: BodyReader, path: str, item: Mapping[str, Any]) -> ClaimFinish:
    reader.time(item, "started_at", path)
    output, output_type = _output(reader, path, item)
    retryable = item.get("retryable")
    return ClaimFinish(
        claim=item["claim"],
        status=item["status"],
        runner_id=item.get("runner_id") or "",
        output=output,
        output_type=output_type,
        output_upload=item.get("output_upload") or "",
        output_truncated=bool(item.get("output_truncated")),
        error=item.get("error_message") or "",
        retryable=True if retryable is None else retryable,
        exit_code=item.get("exit_code"),
        log=_log_text(reader, path, item),
        log_offset=item.get("log_offset") or 0,
        logs_truncated=bool(item.get("logs_truncated")),
    )


def _log_text(reader: BodyReader, path: str, item: Mapping[str, Any]) -> bytes:
    text: bytes = (item.get("log") or "").encode()
    if len(text) > MAX_LOG_PIECE_BYTES:
        reader.add_error(f"{path}.log", f"must be at most {MAX_LOG_PIECE_BYTES:,} bytes of UTF-8")
    return text


def _output(reader: BodyReader, path: str, item: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the output with its content type. Null means no output."""
    given = [name for name in _OUTPUT_FIELDS if item.get(name) is not None]
    if len(given) > 1:
        names = ", ".join(_OUTPUT_FIELDS)
        reader.add_error(f"{path}.{given[1]}", f"only one of {names} may be given")
    if not given or given[0] == "output_upload":
        return b"", ""
    is_text = given[0] == "output_text"
    data = item["output_text"].encode() if is_text else msgspec.json.encode(item["output"])
    if len(data) > MAX_CLAIM_OUTPUT_BYTES:
        text = f"must be at most {MAX_CLAIM_OUTPUT_BYTES:,} bytes; upload a longer output"
        reader.add_error(f"{path}.{given[0]}", text)
    return data, TEXT_CONTENT_TYPE if is_text else JSON_MEDIA_TYPE
