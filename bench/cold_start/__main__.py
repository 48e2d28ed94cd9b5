"""Measure cold starts for `make cold`."""

import sys

from bench.cold_start.emulator import NotStarted
from bench.cold_start.measure import main

try:
    main()
except NotStarted as error:
    sys.exit(f"make cold: {error}")
