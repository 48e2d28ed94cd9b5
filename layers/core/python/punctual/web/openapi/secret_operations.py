"""The operations on secrets."""

from punctual.web.models.secret import SECRET_NAME_REGEX
from punctual.web.openapi.operation import Operation, Parameter, Response

_SECRET_NAME_PARAMETER = Parameter(
    "name",
    {"type": "string", "pattern": f"^{SECRET_NAME_REGEX}$"},
    "The name of the secret. It is not only dots.",
    "path",
    required=True,
)

SECRET_OPERATIONS = (
    Operation(
        "GET /secrets",
        "listSecrets",
        "Access",
        "List the secrets that tasks may name",
        {200: Response("The secrets, sorted by name, without their values.", "SecretList")},
        "A tenant has at most 200 secrets, so the list has one page.",
    ),
    Operation(
        "PUT /secrets/{name}",
        "setSecret",
        "Access",
        "Set a secret",
        {204: Response("The secret is stored.", content="")},
        "Tasks name it as `{{secret:name}}`. No call returns the value. Runs use a changed value "
        "within 60 s. A tenant has at most 200 secrets; another one gets 429.",
        (_SECRET_NAME_PARAMETER,),
        "SecretRequest",
    ),
    Operation(
        "DELETE /secrets/{name}",
        "deleteSecret",
        "Access",
        "Delete a secret",
        {204: Response("The secret is deleted.", content="")},
        "Runs stop using it within 60 s. An attempt that names it then fails without a retry.",
        (_SECRET_NAME_PARAMETER,),
        "Nothing",
        is_body_required=False,
    ),
)
