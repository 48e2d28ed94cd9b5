"""The waiting times of an executor."""

from datetime import timedelta

MAX_EARLY_RECEIVE = timedelta(seconds=2)  # earlier messages go back to the queue
HIDE_AFTER_SECONDS = 1.0  # seconds after which messages are hidden for a lease only
END_BATCH_WAIT_SECONDS = 0.2  # seconds that an end waits for other ends of its batch
STORE_RETRY_SECONDS = 1.0  # seconds until the next try after a failed store call
MAX_STORE_RETRY_SECONDS = 10.0  # seconds of tries for a claim or an output
MAX_END_RETRY_SECONDS = 20.0  # seconds of tries for an end; later another executor may have the run
END_RESERVE_SECONDS = 5.0  # seconds reserved at the end of an invocation to write ends
NO_RETRY_SECONDS = 1.0  # seconds before the end of an invocation without further tries
MIN_RUN_SECONDS = 2.0  # seconds that must be left to begin a run
MAX_LINGER_SECONDS = 2.0  # seconds that background calls may take after all other work
ATTEMPT_CHECK_SECONDS = 1.0  # seconds between two checks of running attempts
