"""The durations that the protocol relies on. docs/architecture.md explains them."""

from datetime import timedelta

RENEWAL_INTERVAL = timedelta(seconds=4)  # a holder renews its lease this often
RENEWAL_TIMEOUT = timedelta(seconds=10)  # a holder without a renewal for this long stops its work
RUN_LEASE = timedelta(seconds=20)  # a lease without a renewal for this long has expired
# The lease until the first renewal, and the visibility timeout of the quick lane.
CLAIM_LEASE = timedelta(seconds=30)
# Delay of the evaluation after an API change, in case its effects were cut off.
FALLBACK_DELAY = timedelta(seconds=15)
POLLER_LEASE = timedelta(seconds=60)  # a poller holds a partition this long without a renewal
RESEND_DELAY = timedelta(seconds=15)  # first wait before a queued run is sent again; doubles
MAX_RESEND_DELAY = timedelta(minutes=5)
# A schedule_time at most this far in the past still runs.
SCHEDULE_TIME_TOLERANCE = timedelta(seconds=5)
HISTORY_RETENTION = timedelta(days=30)
RECEIPT_RETENTION = timedelta(hours=24)  # how long an Idempotency-Key is kept
MAX_LOST_ATTEMPTS = 5  # lost attempts after which the run fails
MAX_RETURNED_CLAIMS = 10  # returned claims of a run; one more return counts as lost
RETURN_DELAY = timedelta(seconds=15)  # first wait of a run that could not start; doubles
MAX_RETURN_DELAY = timedelta(minutes=5)
