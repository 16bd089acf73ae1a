"""`python3 -m e2e.suite [pattern]`: what `make test` runs at its end."""

import sys

from .cli import main

sys.exit(main())
