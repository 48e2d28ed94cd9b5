"""The durations that the protocol relies on. docs/architecture.md explains them."""

from datetime import timedelta

BEAT = timedelta(seconds=4)  # a holder renews its lease this often
HOLD = timedelta(seconds=10)  # a holder without a renewal for this long stops its work
LEASE = timedelta(seconds=20)  # a lease without a renewal for this long has expired
# The lease until the first renewal, and the visibility timeout of the quick lane.
CLAIM_LEASE = timedelta(seconds=30)
# Delay of the evaluation after an API change, in case its effects were cut off.
SAFETY = timedelta(seconds=15)
RESEND = timedelta(seconds=15)  # first wait before a queued run is sent again; doubles
RESEND_MOST = timedelta(minutes=5)
FUTURE_SLACK = timedelta(seconds=5)  # a schedule_time at most this far in the past still runs
RETENTION = timedelta(days=30)
RECEIPT = timedelta(hours=24)  # how long an Idempotency-Key is kept
LOST_AT_MOST = 5  # lost attempts after which the run fails
RETURNED_AT_MOST = 10  # returned claims of a run; one more return counts as lost
RETURN = timedelta(seconds=15)  # first wait of a run that could not start; doubles
RETURN_MOST = timedelta(minutes=5)
