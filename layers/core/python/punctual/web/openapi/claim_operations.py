"""The operations of external executors."""

from punctual.web.openapi.operation import Operation, Response

CLAIM_OPERATIONS = (
    Operation(
        "POST /claims/renew",
        "renewClaims",
        "Claims",
        "Renew claims",
        {200: Response("One result for each claim, in order.", "RenewalResults")},
        "A lease lasts 20 s, so renew every 4 or 5 s. CANCEL: stop, and finish as CANCELLED. "
        "LOST: stop; nothing that this claim sends counts. The first `runner_id` binds the claim, "
        "and another one gets LOST. `started_at` says that the work has begun.",
        body="ClaimRenewals",
    ),
    Operation(
        "POST /claims/finish",
        "finishClaims",
        "Claims",
        "Report how attempts ended",
        {200: Response("One result for each claim, in order.", "FinishResults")},
        "The same item again gets the same answer. RELEASED: the work has not begun; the run "
        "returns to its queue with the same attempt number. `log` is the last part of the log.",
        body="ClaimFinishes",
    ),
    Operation(
        "POST /claims/upload",
        "uploadByClaim",
        "Claims",
        "Get the address of one upload",
        {200: Response("Send the output to `upload_url`.", "UploadLink")},
        "Send the output with one PUT to `upload_url`, with all `upload_headers`, within 15 "
        "minutes. Then name `output_upload` in the finish.",
        body="UploadRequest",
        notes={409: "The claim does not hold its run."},
    ),
)
