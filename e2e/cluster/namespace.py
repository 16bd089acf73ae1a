"""Where moor is installed."""

NAMESPACE = "moor-system"
