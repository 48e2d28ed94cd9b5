"""Connections of the API with its functions, its log and its domain, compared as a whole."""

import pytest

from punctual.web.contract import API_CALLS
from tests.support.infra.references import HERE, SHOWN, every, ids, stage, synthesis_of, values
from tests.support.infra.synthesis import DOMAIN, Synthesis, resources


@pytest.fixture(scope="module", params=SHOWN)
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return synthesis_of(request.param)


def test_api_integrations_use_payload_format_2(synthesis: Synthesis) -> None:
    (authorizer,) = every(synthesis, "AWS::ApiGatewayV2::Authorizer")
    api = HERE.format("apigateway").replace("<AWS::AccountId>", "lambda")
    assert authorizer == {
        "ApiId": "<api>",
        "Name": "token",
        "AuthorizerType": "REQUEST",
        "AuthorizerPayloadFormatVersion": "2.0",
        "AuthorizerResultTtlInSeconds": 0,
        "AuthorizerUri": f"{api}path/2015-03-31/functions/<authorizer.Arn>/invocations",
        "EnableSimpleResponses": True,
    }
    for integration in every(synthesis, "AWS::ApiGatewayV2::Integration"):
        assert integration.pop("Description")
        called = {"<job-service.Arn>", "<job-search.Arn>", "<claims.Arn>"}
        assert integration.pop("IntegrationUri") in called
        assert integration == {
            "ApiId": "<api>",
            "IntegrationType": "AWS_PROXY",
            "PayloadFormatVersion": "2.0",
        }


def test_routes_lead_to_integrations_of_the_same_api(synthesis: Synthesis) -> None:
    existing = {
        f"integrations/<{name}>" for name in ids(synthesis, "AWS::ApiGatewayV2::Integration")
    }
    for route in every(synthesis, "AWS::ApiGatewayV2::Route"):
        assert (route["ApiId"], route["Target"] in existing) == ("<api>", True), route["RouteKey"]


def test_api_stage_has_the_throttle_metrics_and_log_group_of_its_stage(
    synthesis: Synthesis,
) -> None:
    (api_stage,) = every(synthesis, "AWS::ApiGatewayV2::Stage")
    throttle = values(synthesis)["throttle"]
    assert api_stage.pop("Description")
    log = api_stage.pop("AccessLogSettings")
    assert {key.rpartition("/")[0] for key in api_stage.pop("RouteSettings")} == {"POST /claims"}
    assert api_stage == {
        "ApiId": "<api>",
        "StageName": "v1",
        "AutoDeploy": True,
        "DefaultRouteSettings": {
            "DetailedMetricsEnabled": values(synthesis)["apiMetrics"],
            "ThrottlingBurstLimit": throttle["burst"],
            "ThrottlingRateLimit": throttle["rate"],
        },
    }
    (group,) = [name for name in ids(synthesis, "AWS::Logs::LogGroup") if "AccessLog" in name]
    split = {"Fn::Split": [":*", f"<{group}.Arn>"]}
    assert log["DestinationArn"] == {"Fn::Select": [0, split]}


def test_http_api_allows_methods_of_the_contract_by_cors() -> None:
    for kind in SHOWN:
        synthesis = synthesis_of(kind)
        (api,) = every(synthesis, "AWS::ApiGatewayV2::Api")
        assert (api["Name"], api["ProtocolType"]) == (f"punctual-{stage(synthesis)}-api", "HTTP")
    cors = api["CorsConfiguration"]
    assert {call.method for call in API_CALLS} <= set(cors["AllowMethods"])
    assert 60 <= cors["MaxAge"] <= 7200, "no browser remembers it for longer"


def test_custom_domain_maps_to_the_api_stage() -> None:
    (name,) = every(synthesis_of("full"), "AWS::ApiGatewayV2::DomainName")
    assert name == {
        "DomainName": DOMAIN["name"],
        "DomainNameConfigurations": [
            {
                "CertificateArn": DOMAIN["certificateArn"],
                "EndpointType": "REGIONAL",
                "SecurityPolicy": "TLS_1_2",
            }
        ],
    }
    (mapping,) = every(synthesis_of("full"), "AWS::ApiGatewayV2::ApiMapping")
    (domain,) = ids(synthesis_of("full"), "AWS::ApiGatewayV2::DomainName")
    assert mapping == {
        "ApiId": "<api>",
        "ApiMappingKey": "v1",
        "DomainName": f"<{domain}>",
        "Stage": "v1",
    }
    (body,) = resources(synthesis_of("full"), "AWS::ApiGatewayV2::ApiMapping")
    waited = ids(synthesis_of("full"), "AWS::ApiGatewayV2::Stage")
    assert body.body["DependsOn"] == waited, "it names that stage in plain text"
