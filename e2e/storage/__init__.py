"""Kubernetes' own storage tests (External.Storage), run on drivers that moor serves."""
