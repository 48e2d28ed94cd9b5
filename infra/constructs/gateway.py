"""The HTTP API: one route for each call of the contract, behind an authorizer."""

import json
from collections.abc import Mapping

from aws_cdk import Fn, Stack
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config.stage import Stage
from infra.constructs.function import Function
from infra.constructs.log_group import create_log_group
from infra.nag_suppressions import acknowledge
from punctual.web.contract import API_CALLS, CLAIM_FUNCTION, FALLBACK_FUNCTION, PREFLIGHT

API_STAGE_NAME = "v1"
PUBLIC_ROUTE_REASON = "The contract requires no token for this call."
PAYLOAD_FORMAT_VERSION = "2.0"
# The gateway caches no answer, and also calls the authorizer for requests without a token. So a
# revoked token fails at once, and Punctual writes each 401 (docs/decisions/0021-tokens.md).
IDENTITY_SOURCES: list[str] | None = None
AUTHORIZER_CACHE_SECONDS = 0

CORS_METHODS = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]
CORS_REQUEST_HEADERS = ["authorization", "content-type", "idempotency-key", "if-match"]
CORS_EXPOSED_HEADERS = ["allow", "etag", "location", "retry-after", "x-request-id"]

ACCESS_LOG_FIELDS = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "ip": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "route": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "ms": "$context.responseLatency",
    "integrationMs": "$context.integrationLatency",
    "integrationError": "$context.integrationErrorMessage",
    "authorizerMs": "$context.authorizer.latency",
    "authorizerError": "$context.authorizer.error",
    "tenant": "$context.authorizer.tenant",
    "bytes": "$context.responseLength",
    "agent": "$context.identity.userAgent",
}
"""The access log has no headers and no query, because they may contain secrets."""


class Gateway(Construct):
    """The API with its stage; `functions` serve it, by the name of their folder."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        functions: Mapping[str, Function],
        authorizer: Function,
    ) -> None:
        super().__init__(scope, construct_id)
        self.api = gateway.CfnApi(
            self,
            "Api",
            name=stage.resource_name("api"),
            description=f"The API of Punctual ({stage.name})",
            protocol_type="HTTP",
            cors_configuration=_cors(stage),
            # With a custom domain, AWS's own address is switched off.
            disable_execute_api_endpoint=stage.domain is not None,
        )
        self._authorizer = self._create_authorizer(authorizer)
        self._integrations = {
            name: self._create_integration(function) for name, function in functions.items()
        }
        routes = [
            (call, self._create_route(f"{call.method} {call.path}", call.function, call.is_public))
            for call in API_CALLS
        ]
        self._claim_routes = [route for call, route in routes if call.function == CLAIM_FUNCTION]
        self._create_route("$default", FALLBACK_FUNCTION, is_public=False)
        if stage.cors_origins:
            # Without this route, $default would require a token.
            self._create_route(PREFLIGHT, FALLBACK_FUNCTION, is_public=True)
        self.access_log = create_log_group(self, "AccessLog", stage.api_log_group, stage)
        self.stage = self._create_stage(stage)
        self.dns_target = self._create_domain(stage)
        self.address = self._public_address(stage)

    def _create_authorizer(self, function: Function) -> gateway.CfnAuthorizer:
        authorizer = gateway.CfnAuthorizer(
            self,
            "Authorizer",
            api_id=self.api.ref,
            name="token",
            authorizer_type="REQUEST",
            authorizer_payload_format_version=PAYLOAD_FORMAT_VERSION,
            enable_simple_responses=True,
            authorizer_uri=self._invocation_uri(function),
            identity_source=IDENTITY_SOURCES,
            authorizer_result_ttl_in_seconds=AUTHORIZER_CACHE_SECONDS,
        )
        self._allow_invocation("MayAuthorize", function, f"authorizers/{authorizer.ref}")
        return authorizer

    def _create_integration(self, function: Function) -> gateway.CfnIntegration:
        self._allow_invocation(
            f"May-{function.name}", function, f"{API_STAGE_NAME}/*/*", f"{API_STAGE_NAME}/$default"
        )
        return gateway.CfnIntegration(
            self,
            f"To-{function.name}",
            api_id=self.api.ref,
            description=f"Calls {function.name}",
            integration_type="AWS_PROXY",
            integration_uri=function.arn,
            payload_format_version=PAYLOAD_FORMAT_VERSION,
        )

    def _create_route(self, route_key: str, function: str, is_public: bool) -> gateway.CfnRoute:
        route = gateway.CfnRoute(
            self,
            f"Route {route_key}".replace("/", "."),
            api_id=self.api.ref,
            route_key=route_key,
            target=f"integrations/{self._integrations[function].ref}",
            authorization_type="NONE" if is_public else "CUSTOM",
            authorizer_id=None if is_public else self._authorizer.ref,
        )
        if is_public:
            reason = (
                "Browsers send preflight requests without a token."
                if route_key == PREFLIGHT
                else PUBLIC_ROUTE_REASON
            )
            acknowledge(route, reason, "AwsSolutions-APIG4")
        return route

    def _create_stage(self, stage: Stage) -> gateway.CfnStage:
        cfn_stage = gateway.CfnStage(
            self,
            "Stage",
            api_id=self.api.ref,
            stage_name=API_STAGE_NAME,
            description=f"Version 1 of Punctual's API ({stage.name})",
            auto_deploy=True,
            access_log_settings=gateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=_without_star(self.access_log.log_group_arn),
                format=json.dumps(ACCESS_LOG_FIELDS, separators=(",", ":")),
            ),
            default_route_settings=gateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=stage.throttle.rate,
                throttling_burst_limit=stage.throttle.burst,
                detailed_metrics_enabled=stage.api_metrics,
            ),
            route_settings={
                str(route.route_key): {
                    "ThrottlingRateLimit": stage.claim_throttle.rate,
                    "ThrottlingBurstLimit": stage.claim_throttle.burst,
                    "DetailedMetricsEnabled": stage.api_metrics,
                }
                for route in self._claim_routes
            },
        )
        for route in self._claim_routes:  # the gateway rejects settings of an unknown route
            cfn_stage.add_resource_dependency(route)
        return cfn_stage

    def _create_domain(self, stage: Stage) -> str | None:
        """Return the target of the DNS record of the custom domain."""
        if stage.domain is None:
            return None
        domain_name = gateway.CfnDomainName(
            self,
            "Domain",
            domain_name=stage.domain.name,
            domain_name_configurations=[
                gateway.CfnDomainName.DomainNameConfigurationProperty(
                    certificate_arn=stage.domain.certificate_arn,
                    endpoint_type="REGIONAL",
                    security_policy="TLS_1_2",
                )
            ],
        )
        mapping = gateway.CfnApiMapping(
            self,
            "Mapping",
            api_id=self.api.ref,
            domain_name=domain_name.ref,
            stage=API_STAGE_NAME,
            api_mapping_key=API_STAGE_NAME,
        )
        mapping.add_resource_dependency(self.stage)
        return domain_name.attr_regional_domain_name

    def _public_address(self, stage: Stage) -> str:
        if stage.domain is not None:
            return f"https://{stage.domain.name}/{API_STAGE_NAME}"
        return f"{self.api.attr_api_endpoint}/{API_STAGE_NAME}"

    def _allow_invocation(self, construct_id: str, function: Function, *paths: str) -> None:
        for number, path in enumerate(paths):
            lambda_.CfnPermission(
                self,
                f"{construct_id}{number or ''}",
                action="lambda:InvokeFunction",
                function_name=function.arn,
                principal="apigateway.amazonaws.com",
                source_arn=Stack.of(self).format_arn(
                    service="execute-api", resource=self.api.ref, resource_name=path
                ),
            )

    def _invocation_uri(self, function: Function) -> str:
        stack = Stack.of(self)
        return (
            f"arn:{stack.partition}:apigateway:{stack.region}:lambda:path/2015-03-31/functions/"
            f"{function.arn}/invocations"
        )


def _cors(stage: Stage) -> gateway.CfnApi.CorsProperty | None:
    if not stage.cors_origins:
        return None
    return gateway.CfnApi.CorsProperty(
        allow_origins=list(stage.cors_origins),
        allow_methods=CORS_METHODS,
        allow_headers=CORS_REQUEST_HEADERS,
        expose_headers=CORS_EXPOSED_HEADERS,
        max_age=3600,
    )


def _without_star(arn: str) -> str:
    """Return the ARN of the log group without the `:*` that CloudFormation adds."""
    return Fn.select(0, Fn.split(":*", arn))
