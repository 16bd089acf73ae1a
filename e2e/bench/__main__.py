"""`python3 -m e2e.bench`: what `make bench-pods` runs."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
