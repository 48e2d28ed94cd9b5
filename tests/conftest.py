"""Property tests look at the same examples each time; HYPOTHESIS_PROFILE=search looks further."""

import os
import signal

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# What a shell starts in the background ignores Ctrl-C, and hands that on to all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
