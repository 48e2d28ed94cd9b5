"""How long an executor waits for what."""

from datetime import timedelta

EARLY = timedelta(seconds=2)  # waited for here; what is earlier still goes back
HIDE_AFTER = 1.0  # seconds: what takes longer is hidden for no more than a claim's lease
GATHER = 0.2  # seconds that an end waits for others to be written with it
AGAIN = 1.0  # seconds until a store that did not answer is asked again
PATIENCE = 10.0  # seconds of that for a claim, or for an output
HELD = 20.0  # seconds of that for an end: then the run may be another's
MARGIN = 5.0  # seconds kept at the invocation's end to write how runs ended
LAST = 1.0  # seconds before the invocation's end when nothing more is tried
LEAST = 2.0  # seconds that a run is not begun for
LINGER = 2.0  # seconds that calls beside the loop may take when all else is done
LOOK = 1.0  # seconds between two looks at what runs
