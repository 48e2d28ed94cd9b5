"""The calls about who calls: identities, tokens, the audit."""

from typing import get_args

from punctual.web.openapi.answers_access import Action
from punctual.web.openapi.operation import (
    FROM_PARAMETER,
    PAGE_PARAMETERS,
    TO_PARAMETER,
    UUID_SCHEMA,
    Link,
    Operation,
    Parameter,
    Response,
    enum_schema,
)

_TOKEN_ID = Parameter("token_id", UUID_SCHEMA, "The token.", "path", required=True)
_TOKEN_ID_OF_BODY = {"token_id": "$response.body#/token_id"}

ACCESS_OPERATIONS = (
    Operation(
        "whoami",
        "Access",
        "Who calls, and what the tenant may",
        {200: Response("The caller.", "Whoami")},
    ),
    Operation(
        "createToken",
        "Access",
        "Make a token",
        {
            201: Response(
                "The token, with its secret, which is shown this once.",
                "NewToken",
                ("Location",),
                {name: Link(name, _TOKEN_ID_OF_BODY) for name in ("getToken", "revokeToken")},
            )
        },
        "For another tenant only by admins of the installation's own. An Idempotency-Key is not "
        "honoured, for a secret is never kept. A tenant may have 1,000 that are good; the next is "
        "429.",
        body="TokenRequest",
    ),
    Operation(
        "listTokens",
        "Access",
        "List tokens",
        {200: Response("A page, newest first.", "TokenPage")},
        parameters=PAGE_PARAMETERS,
    ),
    Operation(
        "getToken",
        "Access",
        "Read a token",
        {200: Response("The token, without its secret.", "Token")},
        parameters=(_TOKEN_ID,),
    ),
    Operation(
        "revokeToken",
        "Access",
        "Revoke a token",
        {200: Response("The token; it is refused within 60 s.", "Token")},
        "It stays readable; again: 200.",
        (_TOKEN_ID,),
        "Nothing",
        must=False,
    ),
    Operation(
        "getWebhookSecret",
        "Access",
        "What webhooks are signed with",
        {200: Response("The tenant's secret.", "WebhookSecret")},
        "Webhooks follow the convention of standardwebhooks.com: `webhook-signature` holds "
        "`v1,` and the base64 of the HMAC-SHA256, by this secret, of `webhook-id`, "
        "`webhook-timestamp` and the body, joined by dots. After the installation's key is "
        "rotated it is another, and both are signed with.",
    ),
    Operation(
        "listAudit",
        "Access",
        "Who changed what",
        {200: Response("A page, newest first.", "AuditPage")},
        "Filters combine by AND. Where the installation's own admin made a token for this tenant, "
        "`token_id` is null and `address` empty: those are the installation's.",
        (
            Parameter("job_id", UUID_SCHEMA, "Changes of this job."),
            Parameter("caller", {"type": "string", "minLength": 1}, "Changes by this caller."),
            Parameter("action", enum_schema(*get_args(Action)), "Changes of this kind."),
            FROM_PARAMETER,
            TO_PARAMETER,
            *PAGE_PARAMETERS,
        ),
    ),
)
