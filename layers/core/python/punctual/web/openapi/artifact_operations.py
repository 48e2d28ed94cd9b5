"""The operations on artifacts, and the descriptions of their answers."""

from punctual.web.openapi.operation import (
    NEXT_TOKEN_TEXT,
    NOT_OFFERED,
    PAGE_PARAMETERS,
    Operation,
    Response,
    id_parameter,
    links_by_id,
)

_ARTIFACT_LINKS = links_by_id("artifact", "getArtifact", "deleteArtifact")
_ARTIFACT_ID_PARAMETER = id_parameter("artifact")

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
        notes=NOT_OFFERED,
    ),
    Operation(
        "GET /artifacts",
        "listArtifacts",
        "Artifacts",
        "List artifacts",
        {200: Response("A page of artifacts, in the order of their ids.", "ArtifactPage")},
        parameters=PAGE_PARAMETERS,
        notes=NOT_OFFERED,
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

_ARTIFACT_FIELDS = {
    "artifact_id": "The id. It follows from the tenant and the content.",
    "name": "The name of the file.",
    "sha256": "The SHA-256 digest of the file.",
    "size": "The size of the file in bytes.",
    "status": "`PENDING`: the upload has not arrived. `STORED`: jobs may use it.",
    "architecture": "The architecture of an ELF file, such as `x86_64` or `arm64`, or null.",
    "created_at": "The time of the first call with this content.",
    "created_by": "The name of the caller.",
}

ARTIFACT_DESCRIPTIONS = {
    "Artifact": _ARTIFACT_FIELDS,
    "ArtifactUpload": {
        **_ARTIFACT_FIELDS,
        "upload_url": "The address of the PUT. It is absent where the content is stored already.",
        "upload_headers": "The headers that the PUT must have.",
    },
    "UsedArtifact": {
        **_ARTIFACT_FIELDS,
        "jobs": "The jobs that use the artifact: up to 100, and in lists up to 5.",
        "more_jobs": "True if there may be more jobs than `jobs` names.",
    },
    "UsingJob": {"job_id": "The id of the job.", "name": "The name of the job."},
    "ArtifactPage": {
        "artifacts": "The artifacts, in the order of their ids.",
        "next_token": NEXT_TOKEN_TEXT,
    },
}
