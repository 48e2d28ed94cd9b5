"""python -m punctual.node [rotate-webhook-key]"""

import os
import sys

if sys.argv[1:] == ["rotate-webhook-key"]:
    from punctual.node.files.webhook_keys import main as rotate

    sys.exit(rotate(os.environ))

from punctual.node.main import main

sys.exit(main())
