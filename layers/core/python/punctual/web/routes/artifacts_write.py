"""POST and DELETE /artifacts: create an artifact with its upload, and delete one."""

from punctual.engine.commands.artifacts import Artifacts
from punctual.web.http.json_body import parse_object, parse_optional
from punctual.web.http.request import Reply, Request, absolute_url, actor_of, json_reply
from punctual.web.models import bodies
from punctual.web.models.artifact import parse_new_artifact
from punctual.web.routing import RouteTable
from punctual.web.services import Services, installed, parse_id
from punctual.web.views.artifact import artifact_json


class ArtifactWriteRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.post("/artifacts", status_code=201)(self.create)
        table.delete("/artifacts/<artifact_id>")(self.delete)

    def create(self, request: Request) -> Reply:
        """Return 201 with an upload, or 200 where the content is stored already.

        A repeated call answers the same, so an Idempotency-Key is not needed.
        """
        fields = parse_new_artifact(parse_object(request.body))
        created = self._commands().create(request.caller.tenant, *fields, actor_of(request))
        value = artifact_json(created.artifact)
        location = ("location", f"{request.root}/artifacts/{created.artifact.artifact_id}")
        if created.upload is None:
            return json_reply(200, value, location)
        value["upload_url"] = absolute_url(request, created.upload.url)
        value["upload_headers"] = dict(created.upload.headers)
        return json_reply(201, value, location)

    def delete(self, request: Request, artifact_id: str) -> Reply:
        artifact_id = parse_id(artifact_id, "artifact")
        bodies.parse_no_fields(parse_optional(request.body))
        artifact = self._commands().delete(request.caller.tenant, artifact_id, actor_of(request))
        return json_reply(200, artifact_json(artifact))

    def _commands(self) -> Artifacts:
        return installed(self._services.artifacts, "/artifacts")
