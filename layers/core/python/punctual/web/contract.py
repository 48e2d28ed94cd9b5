"""Every call of the API, and which function serves it; what the stack needs and imports cheaply."""

from typing import NamedTuple

from punctual.domain.tenants.roles import Role

READER, WRITER = "job_search", "job_service"
REST = READER  # what no route names: 404, 405, HEAD and OPTIONS
# What a browser asks before a page of another origin may call, and without a token.
PREFLIGHT = "OPTIONS /{proxy+}"

# Asked without a token.
PUBLIC = frozenset({"/health", "/health/live", "/health/ready", "/openapi.json"})


class Call(NamedTuple):
    method: str
    path: str  # as an HTTP API writes it
    function: str
    needs: Role = Role.VIEWER  # and whoever may more

    @property
    def rule(self) -> str:
        """As the routes are declared.

        >>> Call("GET", "/jobs/{job_id}/runs", READER).rule
        '/jobs/<job_id>/runs'
        """
        return self.path.replace("{", "<").replace("}", ">")

    @property
    def public(self) -> bool:
        return self.path in PUBLIC


_JOB = "/jobs/{job_id}"
_RUN = "/jobs/{job_id}/runs/{run_id}"
_TOKEN = "/tokens/{token_id}"

CALLS: tuple[Call, ...] = (
    *(
        Call("GET", path, READER)
        for path in (
            "/jobs",
            _JOB,
            f"{_JOB}/status",
            f"{_JOB}/explain",
            f"{_JOB}/runs",
            _RUN,
            f"{_RUN}/output",
            f"{_RUN}/logs",
            "/runs",
            "/schedules/upcoming",
            "/stats",
            "/health",
            "/health/live",
            "/health/ready",
            "/openapi.json",
        )
    ),
    Call("POST", "/schedules/preview", READER),
    Call("GET", "/whoami", READER),
    Call("GET", "/audit", READER, Role.ADMIN),
    Call("GET", "/tokens", READER, Role.ADMIN),
    Call("GET", _TOKEN, READER, Role.ADMIN),
    Call("GET", "/webhook-secret", WRITER, Role.ADMIN),
    Call("POST", "/tokens", WRITER, Role.ADMIN),
    Call("DELETE", _TOKEN, WRITER, Role.ADMIN),
    Call("POST", "/jobs", WRITER, Role.EDITOR),
    Call("POST", "/jobs/batch", WRITER, Role.EDITOR),
    Call("PUT", _JOB, WRITER, Role.EDITOR),
    Call("PATCH", _JOB, WRITER, Role.EDITOR),
    Call("DELETE", _JOB, WRITER, Role.OPERATOR),
    *(
        Call("POST", path, WRITER, Role.OPERATOR)
        for path in (
            f"{_JOB}/pause",
            f"{_JOB}/resume",
            f"{_JOB}/runNow",
            f"{_JOB}/backfill",
            f"{_RUN}/cancel",
            f"{_RUN}/retry",
        )
    ),
)

NEEDS = {(call.method, call.rule): call.needs for call in CALLS if not call.public}
