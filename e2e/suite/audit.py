"""API requests, as the API server's audit log has them. Writes per claim are moor's currency."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from e2e.cluster import Cluster
from e2e.cluster.certificates import ADMIN
from e2e.cluster.namespace import NAMESPACE
from e2e.cluster.paths import AUDIT_LOG

from .trace import Lock

_ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:moor-"
_PARTS = frozenset({"controller", "agent"})
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_READS = frozenset({"get", "list"})
_markers = itertools.count(1)


@dataclass(frozen=True)
class Request:
    """One request, and what became of it."""

    account: str  # controller, agent
    pod: str
    verb: str
    group: str
    resource: str  # with subresource, as attachments/status
    namespace: str
    name: str
    code: int

    @property
    def accepted(self) -> bool:
        return self.code < 300

    @property
    def of_moor(self) -> bool:
        return self.group == "moor.dev"

    @property
    def by_moor(self) -> bool:
        return self.account in _PARTS

    @property
    def is_read(self) -> bool:
        return self.verb in _READS

    @property
    def is_event(self) -> bool:
        return self.resource == "events"

    def __str__(self) -> str:
        refused = "" if self.accepted else f" ({self.code})"
        return f"{self.account} {self.verb} {self.resource} {self.name}{refused}"


def position(cluster: Cluster) -> int:
    """Now, in the log: behind everything that was answered before this call."""
    settle(cluster)
    return end()


def end() -> int:
    """Where the log ends now. What was answered a moment ago may come behind it."""
    try:
        return AUDIT_LOG.stat().st_size
    except FileNotFoundError:
        return 0


def settle(cluster: Cluster) -> None:
    """Waits until the log has everything that was answered before this call."""
    name = f"audit-marker-{next(_markers)}"
    start = end()
    cluster.api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
    cluster.api.delete(f"/api/v1/namespaces/default/configmaps/{name}")
    cluster.wait_for("the audit log to catch up", lambda: name in _since(start), 20, 0.05)


def writes(cluster: Cluster, since: int) -> list[Request]:
    """moor's own writes since a position, in the order of their answers."""
    settle(cluster)
    return parse(_since(since).splitlines(keepends=True))


def locks(cluster: Cluster, since: int) -> list[Lock]:
    """The Attachments that were made since a position."""
    settle(cluster)
    return parse_locks(_since(since).splitlines(keepends=True))


def requests_of_others(cluster: Cluster, since: int) -> list[Request]:
    """What everybody but the harness has asked for since a position: the writes of moor, kubelets and Kubernetes' own
    controllers, and reads, of which all of moor's are in the log."""
    settle(cluster)
    return parse(_since(since).splitlines(keepends=True), lambda account: account != ADMIN.user, _WRITES | _READS)


def _is_of_moor(account: str) -> bool:
    return account.startswith(_ACCOUNTS)


def parse(
    lines: Iterable[str], of: Callable[[str], bool] = _is_of_moor, verbs: frozenset[str] = _WRITES
) -> list[Request]:
    found = []
    for line in lines:
        if not line.endswith("\n"):
            continue
        entry: dict[str, Any] = json.loads(line)
        user, target = entry.get("user", {}), entry.get("objectRef", {})
        account = str(user.get("username", ""))
        if entry.get("stage") != "ResponseComplete" or entry["verb"] not in verbs:
            continue
        if not of(account):
            continue
        resource = str(target.get("resource", ""))
        pod = user.get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])[0]
        found.append(
            Request(
                account=account.removeprefix(_ACCOUNTS),
                pod=str(pod),
                verb=str(entry["verb"]),
                group=str(target.get("apiGroup", "")),
                resource=f"{resource}/{target['subresource']}" if target.get("subresource") else resource,
                namespace=str(target.get("namespace", "")),
                name=str(target.get("name", "")),
                code=int(entry.get("responseStatus", {}).get("code", 0)),
            )
        )
    return found


def parse_locks(lines: Iterable[str]) -> list[Lock]:
    """Each from when it was asked for: who watches may have it before the answer."""
    found = []
    for line in lines:
        if '"attachments"' not in line or '"create"' not in line or not line.endswith("\n"):
            continue
        entry: dict[str, Any] = json.loads(line)
        made = entry.get("stage") == "ResponseComplete" and entry.get("responseStatus", {}).get("code", 0) < 300
        if entry["verb"] == "create" and entry.get("objectRef", {}).get("resource") == "attachments" and made:
            asked = datetime.fromisoformat(entry["requestReceivedTimestamp"])
            spec = entry["requestObject"]["spec"]
            found.append(Lock(int(asked.timestamp() * 1000), spec["volumeHandle"], spec["fixed"]["nodeID"]))
    return found


def about_claims(found: Iterable[Request]) -> list[Request]:
    """Without Events, plugins and Leases: what using a volume costs."""
    resources = ("volumeclaims", "attachments", "volumehandles", "volumes")
    return [write for write in found if write.of_moor and write.resource.partition("/")[0] in resources]


def told(found: Iterable[Request]) -> str:
    counted = Counter(
        f"{write.account} {write.verb} {write.resource}" + ("" if write.accepted else f" refused ({write.code})")
        for write in found
    )
    return ", ".join(f"{count}x {what}" if count > 1 else what for what, count in counted.items()) or "nothing"


def _since(offset: int) -> str:
    with AUDIT_LOG.open("rb") as log:
        log.seek(offset)
        return log.read().decode(errors="replace")
