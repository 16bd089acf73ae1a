"""The cluster suite: what moor promises, asserted on a real cluster. `python3 -m e2e.suite --help`."""
