"""python -m punctual.local"""

import sys

from punctual.local.serve import main

sys.exit(main())
