"""Builds the authenticator from token rows, SSM secrets and the JWT issuer of the stage."""

from collections.abc import Callable, Mapping

from punctual.auth.authenticator import (
    Authenticator,
    TokenAuthenticator,
    TokenVerifier,
    admin_identity,
)
from punctual.auth.bearer import Identity
from punctual.auth.issuer_config import IssuerConfig
from punctual.aws.clients import Clients
from punctual.aws.dynamodb.control.tokens import DoorTokens
from punctual.aws.parameters import Parameters
from punctual.aws.retries import RetryPolicy
from punctual.lambdas.authorizer.handler import DeployedSecrets, clock_of

HOME = "default"  # the tenant of the token that a deployment creates


def deployed_door(
    env: Mapping[str, str],
    clients: Clients,
    seconds: Callable[[], float],
    patience: RetryPolicy,
    problem: Callable[[str], None],
) -> Authenticator:
    """Return the authenticator. `seconds` is wall time, which proceeds in a frozen environment."""
    knobs = env["PUNCTUAL_KNOBS"]
    parameters = Parameters(lambda: clients.ssm, DeployedSecrets.names(knobs))
    tokens = TokenAuthenticator(
        DeployedSecrets(parameters.read, knobs, seconds),
        DoorTokens(lambda: clients.dynamodb, env["PUNCTUAL_CONTROL_TABLE"], patience),
        clock_of(seconds),
        seconds,
        problem,
        admin_identity(HOME),
    )
    trust = IssuerConfig.from_env(env)
    return Authenticator(tokens, None if trust is None else _Issuer(trust, seconds))


class _Issuer:
    """Verifies JWTs.

    The verifier is imported with the first JWT, so token calls do not wait for it.
    """

    def __init__(self, trust: IssuerConfig, seconds: Callable[[], float]) -> None:
        self._trust = trust
        self._seconds = seconds
        self._made: TokenVerifier | None = None

    def identify(self, text: str) -> Identity | None:
        if self._made is None:
            from punctual.auth.https_fetch import fetch_document
            from punctual.auth.issuer import JwtVerifier

            self._made = JwtVerifier(
                self._trust, fetch_document, clock_of(self._seconds), self._seconds
            )
        return self._made.identify(text)
