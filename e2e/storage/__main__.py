"""`python3 -m e2e.storage`: what `make e2e-storage` runs."""

import sys

from .cli import main

sys.exit(main())
