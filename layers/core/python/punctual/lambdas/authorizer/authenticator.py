"""Builds the authenticator from token rows, SSM secrets and the JWT issuer of the stage."""

from collections.abc import Callable, Mapping

from punctual.auth.authenticator import (
    Authenticator,
    Identity,
    TokenAuthenticator,
    TokenVerifier,
    admin_identity,
)
from punctual.auth.issuer_config import IssuerConfig
from punctual.aws.clients import Clients
from punctual.aws.dynamodb.control.tokens import AuthorizerTokens
from punctual.aws.parameters import Parameters
from punctual.aws.retries import RetryPolicy
from punctual.lambdas.authorizer.handler import DeployedSecrets, build_clock

DEFAULT_TENANT = "default"  # the tenant of the token that a deployment creates


def build_authenticator(
    env: Mapping[str, str],
    clients: Clients,
    wall_seconds: Callable[[], float],
    retry_policy: RetryPolicy,
    log_problem: Callable[[str], None],
) -> Authenticator:
    """Return the authenticator.

    `wall_seconds` is wall time, which proceeds in a frozen environment.
    """
    parameter_prefix = env["PUNCTUAL_KNOBS"]
    parameters = Parameters(lambda: clients.ssm, DeployedSecrets.parameter_names(parameter_prefix))
    tokens = TokenAuthenticator(
        DeployedSecrets(parameters.read, parameter_prefix, wall_seconds),
        AuthorizerTokens(lambda: clients.dynamodb, env["PUNCTUAL_CONTROL_TABLE"], retry_policy),
        build_clock(wall_seconds),
        wall_seconds,
        log_problem,
        admin_identity(DEFAULT_TENANT),
    )
    issuer_config = IssuerConfig.from_env(env)
    return Authenticator(
        tokens, None if issuer_config is None else _LazyJwtVerifier(issuer_config, wall_seconds)
    )


class _LazyJwtVerifier:
    """Verifies JWTs.

    The verifier is imported with the first JWT, so token calls do not wait for it.
    """

    def __init__(self, issuer_config: IssuerConfig, wall_seconds: Callable[[], float]) -> None:
        self._issuer_config = issuer_config
        self._wall_seconds = wall_seconds
        self._verifier: TokenVerifier | None = None

    def identify(self, text: str) -> Identity | None:
        if self._verifier is None:
            from punctual.auth.https_fetch import fetch_document
            from punctual.auth.issuer import JwtVerifier

            self._verifier = JwtVerifier(
                self._issuer_config,
                fetch_document,
                build_clock(self._wall_seconds),
                self._wall_seconds,
            )
        return self._verifier.identify(text)
