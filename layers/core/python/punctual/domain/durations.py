"""Delays, retention times and counts that the protocol relies on. Leases are in `leases`."""

from datetime import timedelta

# Delay of the evaluation after an API change, in case its effects were cut off.
FALLBACK_DELAY = timedelta(seconds=15)
RESEND_DELAY = timedelta(seconds=15)  # first wait before a queued run is sent again; doubles
MAX_RESEND_DELAY = timedelta(minutes=5)
# A schedule_time at most this far in the past still runs.
SCHEDULE_TIME_TOLERANCE = timedelta(seconds=5)
HISTORY_RETENTION = timedelta(days=30)
RECEIPT_RETENTION = timedelta(hours=24)  # how long an Idempotency-Key is kept
MAX_LOST_ATTEMPTS = 5  # lost attempts after which the run fails
MAX_RETURNED_CLAIMS = 10  # returned claims of a run; one more return counts as lost
# Starts that the platform could not make, after which the run fails.
MAX_FAILED_STARTS = 30
RETURN_DELAY = timedelta(seconds=15)  # first wait of a run that could not start; doubles
MAX_RETURN_DELAY = timedelta(minutes=5)
# Waits for room, a quarter of the time since the run was due. HIGH waits half, LOW half longer.
MIN_RESOURCE_WAIT = timedelta(seconds=5)
MAX_RESOURCE_WAIT = timedelta(minutes=1)
