"""Connections of the API with its functions, its log and its domain, compared as a whole."""

import pytest

from punctual.web.contract import API_CALLS
from tests.support.infra.synthesised import DOMAIN, Made, resources
from tests.support.infra.wired import HERE, SHOWN, every, ids, shown, stage, values


@pytest.fixture(scope="module", params=SHOWN)
def made(request: pytest.FixtureRequest) -> Made:
    return shown(request.param)


def test_api_integrations_use_payload_format_2(made: Made) -> None:
    (authorizer,) = every(made, "AWS::ApiGatewayV2::Authorizer")
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
    for one in every(made, "AWS::ApiGatewayV2::Integration"):
        assert one.pop("Description")
        assert one.pop("IntegrationUri") in {"<job-service.Arn>", "<job-search.Arn>"}
        assert one == {
            "ApiId": "<api>",
            "IntegrationType": "AWS_PROXY",
            "PayloadFormatVersion": "2.0",
        }


def test_routes_lead_to_integrations_of_the_same_api(made: Made) -> None:
    there = {f"integrations/<{one}>" for one in ids(made, "AWS::ApiGatewayV2::Integration")}
    for one in every(made, "AWS::ApiGatewayV2::Route"):
        assert (one["ApiId"], one["Target"] in there) == ("<api>", True), one["RouteKey"]


def test_api_stage_has_the_throttle_metrics_and_log_group_of_its_stage(made: Made) -> None:
    (one,) = every(made, "AWS::ApiGatewayV2::Stage")
    throttle = values(made)["throttle"]
    assert one.pop("Description")
    log = one.pop("AccessLogSettings")
    assert one == {
        "ApiId": "<api>",
        "StageName": "v1",
        "AutoDeploy": True,
        "DefaultRouteSettings": {
            "DetailedMetricsEnabled": values(made)["apiMetrics"],
            "ThrottlingBurstLimit": throttle["burst"],
            "ThrottlingRateLimit": throttle["rate"],
        },
    }
    (group,) = [name for name in ids(made, "AWS::Logs::LogGroup") if "AccessLog" in name]
    whole = {"Fn::Split": [":*", f"<{group}.Arn>"]}
    assert log["DestinationArn"] == {"Fn::Select": [0, whole]}


def test_http_api_allows_methods_of_the_contract_by_cors() -> None:
    for kind in SHOWN:
        each = shown(kind)
        (one,) = every(each, "AWS::ApiGatewayV2::Api")
        assert (one["Name"], one["ProtocolType"]) == (f"punctual-{stage(each)}-api", "HTTP")
    cors = one["CorsConfiguration"]
    assert {call.method for call in API_CALLS} <= set(cors["AllowMethods"])
    assert 60 <= cors["MaxAge"] <= 7200, "no browser remembers it for longer"


def test_custom_domain_maps_to_the_api_stage() -> None:
    (name,) = every(shown("full"), "AWS::ApiGatewayV2::DomainName")
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
    (mapping,) = every(shown("full"), "AWS::ApiGatewayV2::ApiMapping")
    (domain,) = ids(shown("full"), "AWS::ApiGatewayV2::DomainName")
    assert mapping == {
        "ApiId": "<api>",
        "ApiMappingKey": "v1",
        "DomainName": f"<{domain}>",
        "Stage": "v1",
    }
    (body,) = resources(shown("full"), "AWS::ApiGatewayV2::ApiMapping")
    waited = ids(shown("full"), "AWS::ApiGatewayV2::Stage")
    assert body.body["DependsOn"] == waited, "it names that stage in plain text"
