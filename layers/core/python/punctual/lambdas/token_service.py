"""Builds the token commands for both API functions. Only `job_service` knows the token key."""

from punctual.aws.dynamodb.control.tokens import DynamoTokens
from punctual.aws.parameters import Parameter
from punctual.aws.ports import random_bytes
from punctual.domain.errors import Unavailable
from punctual.engine.commands.tokens import Tokens
from punctual.engine.ports.tenants.token_rows import LoadTokenKey
from punctual.lambdas.authorizer.authenticator import DEFAULT_TENANT
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.ssm_secrets import TOKEN_KEY_PARAMETER, decode_key


def build_token_commands(runtime: Runtime, key: LoadTokenKey) -> Tokens:
    rows = DynamoTokens(runtime.dynamo, runtime.settings.control_table)
    return Tokens(
        rows,
        key,
        runtime.clock,
        runtime.new_id,
        random_bytes,
        DEFAULT_TENANT,
        runtime.ports.audit_log,
    )


def read_token_key(runtime: Runtime) -> bytes:
    """Return the token key. Each call reads it, since tokens are rarely created."""
    name = runtime.settings.knobs + TOKEN_KEY_PARAMETER
    key = decode_key(Parameter(lambda: runtime.clients.ssm, name).read())
    if not key:
        raise Unavailable(f"The parameter {name} has no token key. Run `make deploy`.")
    return key
