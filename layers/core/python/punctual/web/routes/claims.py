"""Renew, finish and upload by claim. The signed claim is the right, so no token is needed."""

from typing import Any

from punctual.domain.errors import Unavailable
from punctual.domain.timestamps import format_time
from punctual.engine.execution.claims import Claims, RenewalAnswer
from punctual.web.contract import CLAIM_FINISH_PATH, CLAIM_RENEW_PATH, CLAIM_UPLOAD_PATH
from punctual.web.http.json_body import parse_object
from punctual.web.http.request import Reply, Request, absolute_url, json_reply
from punctual.web.models.claims import parse_finishes, parse_renewals, parse_upload
from punctual.web.routing import RouteTable


class ClaimRoutes:
    def __init__(self, claims: Claims | None) -> None:
        self._installed_claims = claims

    def declare(self, table: RouteTable) -> None:
        table.post(CLAIM_RENEW_PATH)(self.renew)
        table.post(CLAIM_FINISH_PATH)(self.finish)
        table.post(CLAIM_UPLOAD_PATH)(self.upload)

    def renew(self, request: Request) -> Reply:
        renewals = parse_renewals(parse_object(request.body))
        answers = self._claims.renew(renewals)
        return json_reply(200, {"results": [_renewal_json(answer) for answer in answers]})

    def finish(self, request: Request) -> Reply:
        finishes = parse_finishes(parse_object(request.body))
        answers = self._claims.finish(finishes)
        return json_reply(200, {"results": [{"status": answer.value} for answer in answers]})

    def upload(self, request: Request) -> Reply:
        fields = parse_upload(parse_object(request.body))
        upload = self._claims.upload(*fields)
        value = {
            "upload_url": absolute_url(request, upload.url),
            "upload_headers": dict(upload.headers),
            "output_upload": upload.output_upload,
        }
        return json_reply(200, value)

    @property
    def _claims(self) -> Claims:
        if self._installed_claims is None:
            raise Unavailable("This server has no claims.")
        return self._installed_claims


def _renewal_json(answer: RenewalAnswer) -> dict[str, Any]:
    value: dict[str, Any] = {"status": answer.status.value}
    if answer.lease_until is not None:
        value["lease_until"] = format_time(answer.lease_until)
    return value
