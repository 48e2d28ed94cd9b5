"""The stack of the HTTP API: gateway, authorizer, job service, job search and claims."""

from collections.abc import Mapping

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra import iam
from infra.config.stage import Stage
from infra.constructs.function import Function, Functions, FunctionShape
from infra.constructs.gateway import Gateway
from infra.constructs.parameters import create_parameter, secret_arn, task_secret_arns
from infra.stacks.data import Data
from infra.stacks.scheduling import Scheduling
from punctual.lambdas.ssm_secrets import (
    ADMIN_HASH_PARAMETER,
    API_ADDRESS_PARAMETER,
    TOKEN_KEY_PARAMETER,
    UNSET_SECRET,
    WEBHOOK_KEY_PARAMETER,
)
from punctual.web.contract import CLAIM_FUNCTION, READ_FUNCTION, WRITE_FUNCTION

# An HTTP API times out after 30 seconds.
API_TIMEOUT_SECONDS = 29
NO_DEAD_LETTERS_REASON = "The caller waits for the answer and gets the error."
AUTHORIZER_SHAPE = FunctionShape(
    "authorizer", "authorizer", "Identifies the caller by a token", 10, NO_DEAD_LETTERS_REASON
)
JOB_SERVICE_SHAPE = FunctionShape(
    "job-service",
    WRITE_FUNCTION,
    "API: all calls that write",
    API_TIMEOUT_SECONDS,
    NO_DEAD_LETTERS_REASON,
)
JOB_SEARCH_SHAPE = FunctionShape(
    "job-search",
    READ_FUNCTION,
    "API: all calls that only read",
    API_TIMEOUT_SECONDS,
    NO_DEAD_LETTERS_REASON,
)

CLAIMS_SHAPE = FunctionShape(
    "claims",
    CLAIM_FUNCTION,
    "API: the calls by claim of external executors",
    API_TIMEOUT_SECONDS,
    NO_DEAD_LETTERS_REASON,
)


class Api(Stack):
    """The HTTP API. Its address is an output of the stack."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        data: Data,
        scheduling: Scheduling,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): the HTTP API and its functions",
            termination_protection=stage.protects("Api"),
        )
        self._stage = stage
        self._environment = scheduling.settings.to_env()
        self._create_function = Functions(self, stage, self._environment)
        self._token_key = secret_arn(self, stage, TOKEN_KEY_PARAMETER)
        self.token_hash = create_parameter(
            self,
            "TokenHash",
            stage,
            ADMIN_HASH_PARAMETER,
            UNSET_SECRET,
            "A keyed hash of the admin token. `make token` creates a new token",
        )
        self._create_functions(data.arns, scheduling.arns)
        self.gateway = Gateway(
            self,
            "Gateway",
            stage=stage,
            functions={
                WRITE_FUNCTION: self.service,
                READ_FUNCTION: self.search,
                CLAIM_FUNCTION: self.claims,
            },
            authorizer=self.authorizer,
        )
        self._publish_address()

    @property
    def functions(self) -> dict[str, Function]:
        return {
            function.name: function
            for function in (self.authorizer, self.service, self.search, self.claims)
        }

    def _create_functions(self, arns: iam.DataArns, queues: iam.QueueArns) -> None:
        stage, create_function = self._stage, self._create_function
        webhook_key = secret_arn(self, stage, WEBHOOK_KEY_PARAMETER)
        issuer_environment = stage.issuer.to_env() if stage.issuer else {}
        self.authorizer = create_function(
            AUTHORIZER_SHAPE,
            iam.authorizer(arns, (self._token_key, self.token_hash.parameter_arn)),
            {**_authorizer_environment(self._environment), **issuer_environment},
        )
        self.service = create_function(
            JOB_SERVICE_SHAPE,
            iam.job_service(
                arns, queues, self._token_key, webhook_key, task_secret_arns(self, stage)
            ),
        )
        has_limits = stage.limits is not None
        self.search = create_function(
            JOB_SEARCH_SHAPE,
            iam.job_search(arns, has_limits),
            {**self._environment, **issuer_environment},
        )
        self.claims = create_function(CLAIMS_SHAPE, iam.claims(arns, queues, self._token_key))

    def _publish_address(self) -> None:
        """Tell the address to executors, and print it after a deployment."""
        # The executors are deployed before the API, so they read its address at run time.
        create_parameter(
            self,
            "ApiAddress",
            self._stage,
            API_ADDRESS_PARAMETER,
            self.gateway.address,
            "The address of the API, where runners of scripts renew and finish their claims",
        )
        CfnOutput(self, "Address", value=self.gateway.address, description="The address of the API")
        if self.gateway.dns_target is not None:
            CfnOutput(
                self,
                "DomainPointsTo",
                value=self.gateway.dns_target,
                description="The target of the DNS record (CNAME or alias) of the API's domain",
            )


def _authorizer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the authorizer: only its own, because each start reads all."""
    return {name: environment[name] for name in ("PUNCTUAL_CONTROL_TABLE", "PUNCTUAL_KNOBS")}
