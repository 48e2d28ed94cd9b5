"""The waiting times of an executor."""

from datetime import timedelta

EARLY = timedelta(seconds=2)  # earlier messages go back to the queue
HIDE_AFTER = 1.0  # seconds after which messages are hidden for a lease only
GATHER = 0.2  # seconds that an end waits for other ends of its batch
AGAIN = 1.0  # seconds until the next try after a failed store call
PATIENCE = 10.0  # seconds of tries for a claim or an output
HELD = 20.0  # seconds of tries for an end; later another executor may have the run
MARGIN = 5.0  # seconds reserved at the end of an invocation to write ends
LAST = 1.0  # seconds before the end of an invocation without further tries
LEAST = 2.0  # seconds that must be left to begin a run
LINGER = 2.0  # seconds that background calls may take after all other work
LOOK = 1.0  # seconds between two checks of running attempts
