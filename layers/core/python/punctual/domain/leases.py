"""The lengths of leases, and how often a holder renews its lease."""

from datetime import timedelta

RENEWAL_INTERVAL = timedelta(seconds=4)  # a holder renews its lease this often
RENEWAL_TIMEOUT = timedelta(seconds=10)  # a holder without a renewal for this long stops its work
RUN_LEASE = timedelta(seconds=20)  # a lease without a renewal for this long has expired
# The lease until the first renewal, and the visibility timeout of the quick lane.
CLAIM_LEASE = timedelta(seconds=30)
POLLER_LEASE = timedelta(seconds=60)  # a poller holds a partition this long without a renewal
# The lease of a run until its detached runner starts. Lambda drops an event that is 60 s old.
DETACHED_LEASE = timedelta(seconds=75)
