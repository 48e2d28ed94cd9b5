"""The operations on artifacts."""

from punctual.web.openapi.operation import (
    PAGE_PARAMETERS,
    UUID_SCHEMA,
    Link,
    Operation,
    Parameter,
    Response,
)

_ARTIFACT_ID_OF_BODY = {"artifact_id": "$response.body#/artifact_id"}
_ARTIFACT_LINKS = {
    name: Link(name, _ARTIFACT_ID_OF_BODY) for name in ("getArtifact", "deleteArtifact")
}
_ARTIFACT_ID_PARAMETER = Parameter(
    "artifact_id", UUID_SCHEMA, "The id of the artifact.", "path", required=True
)

ARTIFACT_OPERATIONS = (
    Operation(
        "POST /artifacts",
        "createArtifact",
        "Artifacts",
        "Create an artifact",
        {
            200: Response(
                "The content is stored already.", "ArtifactUpload", ("Location",), _ARTIFACT_LINKS
            ),
            201: Response(
                "Send the file to `upload_url`.", "ArtifactUpload", ("Location",), _ARTIFACT_LINKS
            ),
        },
        "Send the file with one PUT to `upload_url`, with all `upload_headers`, within 15 minutes. "
        "The upload fails unless size and SHA-256 are right. A repeated call answers with another "
        "`upload_url`. An artifact without an upload is forgotten after 24 h.",
        body="ArtifactRequest",
    ),
    Operation(
        "GET /artifacts",
        "listArtifacts",
        "Artifacts",
        "List artifacts",
        {200: Response("A page of artifacts, in the order of their ids.", "ArtifactPage")},
        parameters=PAGE_PARAMETERS,
    ),
    Operation(
        "GET /artifacts/{artifact_id}",
        "getArtifact",
        "Artifacts",
        "Read an artifact",
        {200: Response("The artifact, with up to 100 of the jobs that use it.", "UsedArtifact")},
        parameters=(_ARTIFACT_ID_PARAMETER,),
    ),
    Operation(
        "DELETE /artifacts/{artifact_id}",
        "deleteArtifact",
        "Artifacts",
        "Delete an artifact",
        {200: Response("The deleted artifact. Its bytes are removed later.", "Artifact")},
        "A job uses an artifact while its present definition or one of its live runs names it.",
        (_ARTIFACT_ID_PARAMETER,),
        "Nothing",
        is_body_required=False,
        notes={409: "Jobs use the artifact."},
    ),
)
