"""The scenarios: one module per subject."""

from importlib import import_module

# Quick and plain ones first; what takes the system apart comes last.
_MODULES = (
    "sanity",
    "native",
    "file_systems",
    "block_devices",
    "edits",
    "snapshots",
    "groups",
    "growth",
    "owners",
    "sharing",
    "waiting",
    "failures",
    "refusals",
    "cost",
    "adoption",
    "mount_library",
    "lives",
    "pods",
    "pod_failures",
    "charts",
    "storage_tests",
    "secrecy",
    "namespaces",
    "forgery",
    "kills",
    "failover",
    "managed",
    "supervision",
    "relief",
    "losses",
    "databases",
    "malformed",
    "uninstall",
    "soak",
)


def in_order() -> None:
    """Fills the registry."""
    for name in _MODULES:
        import_module(f".{name}", __name__)
