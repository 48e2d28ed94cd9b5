"""Every call of the API, and which function serves it; what the stack needs and imports cheaply."""

from typing import NamedTuple

from punctual.domain.tenants.roles import Role

READER, WRITER = "job_search", "job_service"
FALLBACK_FUNCTION = READER  # what no route names: 404, 405, HEAD and OPTIONS
# What a browser asks before a page of another origin may call, and without a token.
PREFLIGHT = "OPTIONS /{proxy+}"

# Asked without a token.
PUBLIC_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/openapi.json"})


class ApiCall(NamedTuple):
    method: str
    path: str  # as an HTTP API writes it
    function: str
    needs: Role = Role.VIEWER  # and whoever may more

    @property
    def rule(self) -> str:
        """As the routes are declared.

        >>> ApiCall("GET", "/jobs/{job_id}/runs", READER).rule
        '/jobs/<job_id>/runs'
        """
        return self.path.replace("{", "<").replace("}", ">")

    @property
    def public(self) -> bool:
        return self.path in PUBLIC_PATHS


_JOB_PATH = "/jobs/{job_id}"
_RUN_PATH = "/jobs/{job_id}/runs/{run_id}"
_TOKEN_PATH = "/tokens/{token_id}"

API_CALLS: tuple[ApiCall, ...] = (
    *(
        ApiCall("GET", path, READER)
        for path in (
            "/jobs",
            _JOB_PATH,
            f"{_JOB_PATH}/status",
            f"{_JOB_PATH}/explain",
            f"{_JOB_PATH}/runs",
            _RUN_PATH,
            f"{_RUN_PATH}/output",
            f"{_RUN_PATH}/logs",
            "/runs",
            "/schedules/upcoming",
            "/stats",
            "/health",
            "/health/live",
            "/health/ready",
            "/openapi.json",
        )
    ),
    ApiCall("POST", "/schedules/preview", READER),
    ApiCall("GET", "/whoami", READER),
    ApiCall("GET", "/audit", READER, Role.ADMIN),
    ApiCall("GET", "/tokens", READER, Role.ADMIN),
    ApiCall("GET", _TOKEN_PATH, READER, Role.ADMIN),
    ApiCall("GET", "/webhook-secret", WRITER, Role.ADMIN),
    ApiCall("POST", "/tokens", WRITER, Role.ADMIN),
    ApiCall("DELETE", _TOKEN_PATH, WRITER, Role.ADMIN),
    ApiCall("POST", "/jobs", WRITER, Role.EDITOR),
    ApiCall("POST", "/jobs/batch", WRITER, Role.EDITOR),
    ApiCall("PUT", _JOB_PATH, WRITER, Role.EDITOR),
    ApiCall("PATCH", _JOB_PATH, WRITER, Role.EDITOR),
    ApiCall("DELETE", _JOB_PATH, WRITER, Role.OPERATOR),
    *(
        ApiCall("POST", path, WRITER, Role.OPERATOR)
        for path in (
            f"{_JOB_PATH}/pause",
            f"{_JOB_PATH}/resume",
            f"{_JOB_PATH}/runNow",
            f"{_JOB_PATH}/backfill",
            f"{_RUN_PATH}/cancel",
            f"{_RUN_PATH}/retry",
        )
    ),
)

REQUIRED_ROLES = {(call.method, call.rule): call.needs for call in API_CALLS if not call.public}
