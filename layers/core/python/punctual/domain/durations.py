"""The few durations that the protocol rests on; architecture.md says why each is what it is."""

from datetime import timedelta

BEAT = timedelta(seconds=4)  # a holder renews its lease this often
HOLD = timedelta(seconds=10)  # a holder that could not renew for so long kills its work
LEASE = timedelta(seconds=20)  # a lease that was not renewed for so long is over
CLAIM_LEASE = timedelta(seconds=30)  # before the first beat: the quick lane's visibility
SAFETY = timedelta(seconds=15)  # a look after an API change, in case its effects were cut off
RESEND = timedelta(seconds=15)  # a queued run is announced again after this, then doubling
RESEND_MOST = timedelta(minutes=5)
FUTURE_SLACK = timedelta(seconds=5)  # a schedule_time this far in the past still runs
RETENTION = timedelta(days=30)
RECEIPT = timedelta(hours=24)  # an Idempotency-Key is remembered
LOST_AT_MOST = 5  # attempts whose executor died before the run is given up
RETURNED_AT_MOST = 10  # claims given back before they began, until one counts as lost
RETURN = timedelta(seconds=15)  # what could not be begun waits so long, then doubling
RETURN_MOST = timedelta(minutes=5)
