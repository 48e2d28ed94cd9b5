"""The HTTP API in the template matches the contract."""

import json
from typing import Any

from infra.constructs.gateway import CORS_EXPOSED_HEADERS
from punctual.web.contract import API_CALLS, CLAIM_PATHS, PREFLIGHT, PUBLIC_PATHS
from tests.support.infra.synthesis import (
    DOMAIN,
    assembly,
    full,
    functions,
    resources,
    stage_settings,
)


def properties_of(kind: str, synthesis: Any) -> dict[str, Any]:
    (resource,) = resources(synthesis, f"AWS::ApiGatewayV2::{kind}")
    return dict(resource.properties)


def routes(stage: str) -> dict[str, dict[str, Any]]:
    resources_found = resources(assembly(stage), "AWS::ApiGatewayV2::Route")
    return {route.properties["RouteKey"]: dict(route.properties) for route in resources_found}


def integrations(stage: str) -> dict[str, str]:
    """Return the function names by logical id of the integration."""
    by_id = {function.name: name for name, function in functions(assembly(stage)).items()}
    return {
        integration.name: by_id[integration.properties["IntegrationUri"]["Fn::GetAtt"][0]]
        for integration in resources(assembly(stage), "AWS::ApiGatewayV2::Integration")
    }


def test_each_call_of_the_contract_has_a_route_beside_the_default_route(stage: str) -> None:
    assert set(routes(stage)) == {f"{c.method} {c.path}" for c in API_CALLS} | {"$default"}


def test_writes_and_reads_are_routed_to_their_functions(stage: str) -> None:
    served = {}
    for key, route in routes(stage).items():
        (integration,) = [i for i in integrations(stage) if i in json.dumps(route["Target"])]
        served[key] = integrations(stage)[integration]
    expected = {f"{c.method} {c.path}": c.function.replace("_", "-") for c in API_CALLS}
    assert served == {**expected, "$default": "job-search"}
    writing_reads = {
        key for key in served if key.startswith("GET ") and served[key] != "job-search"
    }
    # The audit records each read of the webhook secret. One function has the rights on secrets.
    assert writing_reads == {"GET /webhook-secret", "GET /secrets"}


def test_only_public_calls_need_no_token(stage: str) -> None:
    public = {key for key, route in routes(stage).items() if route["AuthorizationType"] == "NONE"}
    claims = {f"POST {path}" for path in CLAIM_PATHS}
    assert public == {f"GET {path}" for path in PUBLIC_PATHS - CLAIM_PATHS} | claims
    (authorizer,) = resources(assembly(stage), "AWS::ApiGatewayV2::Authorizer")
    for key, route in routes(stage).items():
        if key not in public:
            assert route["AuthorizationType"] == "CUSTOM"
            assert route["AuthorizerId"] == {"Ref": authorizer.name}


def test_authorizer_is_called_for_each_request(stage: str) -> None:
    authorizer = properties_of("Authorizer", assembly(stage))
    assert authorizer["AuthorizerType"] == "REQUEST"
    assert authorizer["AuthorizerPayloadFormatVersion"] == "2.0"
    assert authorizer["EnableSimpleResponses"] is True
    assert authorizer["AuthorizerResultTtlInSeconds"] == 0
    assert "IdentitySource" not in authorizer
    name = functions(assembly(stage))["authorizer"].name
    assert name in json.dumps(authorizer["AuthorizerUri"])


def test_api_stage_is_throttled_and_logs_each_request(stage: str) -> None:
    api_stage = properties_of("Stage", assembly(stage))
    throttle = stage_settings(stage)["throttle"]
    assert (api_stage["StageName"], api_stage["AutoDeploy"]) == ("v1", True)
    assert api_stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == throttle["rate"]
    assert api_stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] == throttle["burst"]
    logged = json.loads(api_stage["AccessLogSettings"]["Format"])
    assert logged["requestId"] == "$context.requestId"
    assert not [value for value in logged.values() if "header" in value or "query" in value]


def test_calls_by_claim_have_a_throttle_of_their_own(stage: str) -> None:
    throttle = stage_settings(stage)["claimThrottle"]
    settings = properties_of("Stage", assembly(stage))["RouteSettings"]
    assert settings == {
        f"POST {path}": {
            "ThrottlingRateLimit": throttle["rate"],
            "ThrottlingBurstLimit": throttle["burst"],
            "DetailedMetricsEnabled": False,
        }
        for path in CLAIM_PATHS
    }
    (api_stage,) = resources(assembly(stage), "AWS::ApiGatewayV2::Stage")
    throttled = {
        route.name
        for route in resources(assembly(stage), "AWS::ApiGatewayV2::Route")
        if route.properties["RouteKey"] in settings
    }
    assert set(api_stage.body["DependsOn"]) == throttled, "settings need an existing route"


def test_access_log_contains_no_token(stage: str) -> None:
    assert "authorization" not in json.dumps(properties_of("Stage", assembly(stage))).lower()


def test_only_this_api_may_invoke_the_api_functions(stage: str) -> None:
    (api,) = resources(assembly(stage), "AWS::ApiGatewayV2::Api")
    allowed = set()
    names = {function.name: name for name, function in functions(assembly(stage)).items()}
    for permission in resources(assembly(stage), "AWS::Lambda::Permission", "Api"):
        assert permission.properties["Principal"] == "apigateway.amazonaws.com"
        assert {"Ref": api.name} in permission.properties["SourceArn"]["Fn::Join"][1]
        allowed.add(names[permission.properties["FunctionName"]["Fn::GetAtt"][0]])
    assert allowed == {"authorizer", "job-service", "job-search", "claims"}


def test_cors_is_enabled_only_for_configured_origins(stage: str) -> None:
    assert "CorsConfiguration" not in properties_of("Api", assembly(stage))
    cors = properties_of("Api", full())["CorsConfiguration"]
    assert cors["AllowOrigins"] == ["https://app.example.com"]
    assert not cors.get("AllowCredentials")
    assert "authorization" in cors["AllowHeaders"]
    assert (
        {"etag", "location", "retry-after"}
        <= set(cors["ExposeHeaders"])
        == set(CORS_EXPOSED_HEADERS)
    )


def test_cors_preflight_needs_no_token() -> None:
    """`$default` would match the preflight request and require a token."""
    routes_found = {
        str(route.properties["RouteKey"]): route.properties
        for route in resources(full(), "AWS::ApiGatewayV2::Route")
    }
    assert set(routes_found) == {f"{c.method} {c.path}" for c in API_CALLS} | {
        "$default",
        PREFLIGHT,
    }
    assert routes_found[PREFLIGHT]["AuthorizationType"] == "NONE"
    assert routes_found[PREFLIGHT]["Target"] == routes_found["$default"]["Target"]
    assert routes_found["$default"]["AuthorizationType"] == "CUSTOM"


def test_output_names_the_api_address(stage: str) -> None:
    value = assembly(stage).templates["Api"]["Outputs"]["Address"]["Value"]
    assert value["Fn::Join"][1][1] == "/v1"
    assert properties_of("Api", assembly(stage))["DisableExecuteApiEndpoint"] is False


def test_custom_domain_disables_the_default_endpoint() -> None:
    outputs = full().templates["Api"]["Outputs"]
    assert outputs["Address"]["Value"] == "https://jobs.example.com/v1"
    assert "DomainPointsTo" in outputs
    assert properties_of("Api", full())["DisableExecuteApiEndpoint"] is True
    (configuration,) = properties_of("DomainName", full())["DomainNameConfigurations"]
    assert configuration["CertificateArn"] == DOMAIN["certificateArn"]
    assert configuration["SecurityPolicy"] == "TLS_1_2"
    mapping = properties_of("ApiMapping", full())
    assert (mapping["ApiMappingKey"], mapping["Stage"]) == ("v1", "v1")
