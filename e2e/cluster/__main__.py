"""`python3 -m e2e.cluster`: what the Makefile calls."""

import sys

from .cli import main

sys.exit(main())
