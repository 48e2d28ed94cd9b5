"""List every call of the API, the function that serves it and the role that it needs.

The stacks import this module, so it imports little.
"""

from typing import NamedTuple

from punctual.domain.tenants.roles import Role

READ_FUNCTION, WRITE_FUNCTION = "job_search", "job_service"
CLAIM_FUNCTION = "claims"  # has a throttle of its own, so renewals never crowd out other calls
FALLBACK_FUNCTION = READ_FUNCTION  # serves all other requests: 404, 405, HEAD and OPTIONS
# A browser sends a preflight without a token before a page of another origin may call.
PREFLIGHT = "OPTIONS /{proxy+}"

CLAIM_RENEW_PATH, CLAIM_FINISH_PATH = "/claims/renew", "/claims/finish"
CLAIM_UPLOAD_PATH = "/claims/upload"
# The signed claim in the body of these calls is the right.
CLAIM_PATHS = frozenset({CLAIM_RENEW_PATH, CLAIM_FINISH_PATH, CLAIM_UPLOAD_PATH})
# These paths need no token.
PUBLIC_PATHS = CLAIM_PATHS | {"/health", "/health/live", "/health/ready", "/openapi.json"}


class ApiCall(NamedTuple):
    method: str
    path: str  # in the syntax of API Gateway
    function: str
    role: Role = Role.VIEWER  # the lowest role that may call

    @property
    def rule(self) -> str:
        """Return the path in the syntax of powertools.

        >>> ApiCall("GET", "/jobs/{job_id}/runs", READ_FUNCTION).rule
        '/jobs/<job_id>/runs'
        """
        return self.path.replace("{", "<").replace("}", ">")

    @property
    def is_public(self) -> bool:
        return self.path in PUBLIC_PATHS


_JOB_PATH = "/jobs/{job_id}"
_RUN_PATH = "/jobs/{job_id}/runs/{run_id}"
_TOKEN_PATH = "/tokens/{token_id}"
_SECRET_PATH = "/secrets/{name}"
_ARTIFACT_PATH = "/artifacts/{artifact_id}"
_FAILURE_PATH = "/failures/{failure_id}"
_OPERATION_PATH = "/operations/{operation_id}"

API_CALLS: tuple[ApiCall, ...] = (
    *(
        ApiCall("GET", path, READ_FUNCTION)
        for path in (
            "/jobs",
            _JOB_PATH,
            f"{_JOB_PATH}/status",
            f"{_JOB_PATH}/explain",
            f"{_JOB_PATH}/versions",
            f"{_JOB_PATH}/runs",
            _RUN_PATH,
            f"{_RUN_PATH}/output",
            f"{_RUN_PATH}/logs",
            "/runs",
            "/changes",
            "/artifacts",
            _ARTIFACT_PATH,
            "/failures",
            "/overview",
            "/schedules/upcoming",
            "/forecast",
            "/stats",
            "/health",
            "/health/live",
            "/health/ready",
            "/openapi.json",
        )
    ),
    ApiCall("POST", "/schedules/preview", READ_FUNCTION),
    ApiCall("POST", "/schedules/diff", READ_FUNCTION),
    ApiCall("GET", "/whoami", READ_FUNCTION),
    ApiCall("GET", "/audit", READ_FUNCTION, Role.ADMIN),
    ApiCall("GET", "/tokens", READ_FUNCTION, Role.ADMIN),
    ApiCall("GET", _TOKEN_PATH, READ_FUNCTION, Role.ADMIN),
    ApiCall("GET", "/webhook-secret", WRITE_FUNCTION, Role.ADMIN),
    ApiCall("GET", "/secrets", WRITE_FUNCTION, Role.EDITOR),
    ApiCall("PUT", _SECRET_PATH, WRITE_FUNCTION, Role.EDITOR),
    ApiCall("DELETE", _SECRET_PATH, WRITE_FUNCTION, Role.EDITOR),
    ApiCall("POST", "/tokens", WRITE_FUNCTION, Role.ADMIN),
    ApiCall("DELETE", _TOKEN_PATH, WRITE_FUNCTION, Role.ADMIN),
    ApiCall("POST", "/artifacts", WRITE_FUNCTION, Role.EDITOR),
    ApiCall("DELETE", _ARTIFACT_PATH, WRITE_FUNCTION, Role.EDITOR),
    ApiCall("POST", "/jobs", WRITE_FUNCTION, Role.EDITOR),
    ApiCall("POST", "/jobs/batch", WRITE_FUNCTION, Role.EDITOR),
    ApiCall("PUT", _JOB_PATH, WRITE_FUNCTION, Role.EDITOR),
    ApiCall("PATCH", _JOB_PATH, WRITE_FUNCTION, Role.EDITOR),
    ApiCall("DELETE", _JOB_PATH, WRITE_FUNCTION, Role.OPERATOR),
    *(
        ApiCall("POST", path, WRITE_FUNCTION, Role.OPERATOR)
        for path in (
            f"{_JOB_PATH}/pause",
            f"{_JOB_PATH}/resume",
            f"{_JOB_PATH}/runNow",
            f"{_JOB_PATH}/backfill",
            f"{_RUN_PATH}/cancel",
            f"{_RUN_PATH}/retry",
            f"{_FAILURE_PATH}/acknowledge",
        )
    ),
    ApiCall("POST", "/jobs/bulk", WRITE_FUNCTION, Role.OPERATOR),
    ApiCall("GET", "/operations", READ_FUNCTION),
    ApiCall("GET", _OPERATION_PATH, READ_FUNCTION),
    ApiCall("POST", f"{_OPERATION_PATH}/cancel", WRITE_FUNCTION, Role.OPERATOR),
    *(ApiCall("POST", path, CLAIM_FUNCTION) for path in sorted(CLAIM_PATHS)),
)

REQUIRED_ROLES = {(call.method, call.rule): call.role for call in API_CALLS if not call.is_public}
