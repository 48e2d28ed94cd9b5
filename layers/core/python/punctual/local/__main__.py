"""python -m punctual.local [rotate-webhook-key]"""

import os
import sys

if sys.argv[1:] == ["rotate-webhook-key"]:
    from punctual.local.webhook_keys import main as rotate

    sys.exit(rotate(os.environ))

from punctual.local.serve import main

sys.exit(main())
