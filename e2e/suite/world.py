"""What a scenario works with: the cluster, a namespace of its own, and words for what it does and expects."""

from __future__ import annotations

import time
from collections.abc import Iterable

from e2e.cluster import ApiError, Cluster, Node, Problem

from . import audit, objects
from .calls import Call, mutating
from .driver import LoopDriver
from .objects import Object
from .pods import Pods, Running
from .trace import Kill, Lock


class Failed(Exception):
    """Something is not as it should be."""


def expect(holds: object, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)


class World:
    """One scenario's view of the cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.driver = LoopDriver(cluster)
        self.pods = Pods(cluster)
        self.kills: list[Kill] = []
        self.notes: list[str] = []
        self._start = self.driver.last()
        self._log = audit.end()

    # Nodes.

    @property
    def first(self) -> Node:
        return self.cluster.nodes[0]

    @property
    def second(self) -> Node:
        return self.cluster.nodes[1]

    def kill(self, victim: Running) -> None:
        """kill -9, and the trace check is told."""
        self.kills.append(victim.kill())

    def note(self, text: str) -> None:
        """A measured number or the like, printed under the scenario's line."""
        self.notes.append(text)

    # Objects.

    def create(self, item: Object) -> Object:
        created: Object = self.cluster.api.post(objects.home(item), item)
        return created

    def volume(self, name: str = "data", **spec: object) -> Object:
        return self.create(objects.volume(self.namespace, name, **spec))

    def snapshot(self, name: str, **spec: object) -> Object:
        return self.create(objects.snapshot(self.namespace, name, **spec))

    def claim(self, name: str, node: Node | None = None, **spec: object) -> Object:
        where = None if node is None else node.name
        return self.create(objects.claim(self.namespace, name, nodeName=where, **spec))

    def get(self, kind: str, name: str) -> Object:
        found: Object = self.cluster.api.get(objects.path(kind, self.namespace, name))
        found.setdefault("kind", kind)
        return found

    def find(self, kind: str, name: str) -> Object | None:
        found = self.found(objects.path(kind, self.namespace, name))
        return found and {"kind": kind, **found}

    def found(self, path: str) -> Object | None:
        """What is at a path of the API server, if anything is."""
        try:
            found: Object = self.cluster.api.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def every(self, kind: str) -> list[Object]:
        found: list[Object] = self.cluster.api.get(objects.collection(kind, self.namespace))["items"]
        return found

    def attachments(self) -> list[Object]:
        """Attachments of this scenario's Volumes."""
        return [item for item in self.every("Attachment") if item["spec"]["volume"]["namespace"] == self.namespace]

    def attachment_of(self, claim: str) -> Object:
        """The Attachment that a claim was granted."""
        granted = self.get("VolumeClaim", claim)["spec"]["assignment"]
        found = self.get("Attachment", granted["attachment"])
        expect(found["metadata"]["uid"] == granted["attachmentUID"], f"{claim} names another Attachment's UID")
        return found

    def handle(self, volume: str = "data") -> str:
        """The volume's id, as the driver knows it."""
        return str(self.get("Volume", volume)["status"]["volumeHandle"])

    def delete(self, kind: str, name: str) -> None:
        """Asks for it and does not wait."""
        self.cluster.api.delete(objects.path(kind, self.namespace, name))

    def remove(self, kind: str, *names: str, timeout: float = 60) -> None:
        """Deletes and waits until they are gone."""
        for name in names:
            self.delete(kind, name)
        for name in names:
            self.await_gone(kind, name, timeout)

    # Waiting.

    def await_account(self) -> None:
        """Waits until Pods can be made in the scenario's namespace."""
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        self.cluster.wait_for("the default service account", lambda: self.found(account), 30)

    def await_ready(self, kind: str, *names: str, timeout: float = 60) -> list[Object]:
        deadline = time.monotonic() + timeout
        return [
            self.await_that(kind, name, "to be Ready", objects.is_ready, deadline - time.monotonic()) for name in names
        ]

    def await_that(
        self, kind: str, name: str, what: str, holds: objects.Holds, timeout: float = 30
    ) -> Object:
        """Waits until a condition holds for an object; says what it was instead if it never does."""

        def look() -> Object | None:
            item = self.get(kind, name)
            return item if holds(item) else None

        try:
            found = self.cluster.wait_for(f"{kind} {name} {what}", look, max(timeout, 1), 0.05)
        except Problem as problem:
            raise Failed(f"{problem.what}: {objects.told(self.get(kind, name))}") from None
        assert found is not None
        return found

    def await_reason(self, kind: str, name: str, reason: str, *words: str, timeout: float = 20) -> Object:
        """Waits until Ready is False for this reason, and looks for words in its message."""

        def says(item: Object) -> bool:
            found = objects.condition(item)
            return found.get("status") == "False" and found.get("reason") == reason

        item = self.await_that(kind, name, f"to wait for the reason {reason}", says, timeout)
        message = objects.condition(item)["message"]
        for word in words:
            expect(word in message, f"the condition of {kind} {name} does not mention {word!r}: {message}")
        return item

    def await_gone(self, kind: str, name: str, timeout: float = 60) -> None:
        try:
            self.cluster.wait_for(f"{kind} {name} to be gone", lambda: self.find(kind, name) is None, timeout, 0.05)
        except Problem as problem:
            raise Failed(f"{problem.what}: {objects.told(self.get(kind, name))}") from None

    def ready_volume(self, name: str = "data", **spec: object) -> Object:
        self.volume(name, **spec)
        return self.await_ready("Volume", name)[0]

    def ready_claim(self, name: str, node: Node | None = None, **spec: object) -> str:
        """Creates a claim, waits until it is Ready, and returns its path."""
        self.claim(name, node, **spec)
        self.await_ready("VolumeClaim", name)
        return self.target(name)

    def target(self, claim: str) -> str:
        """The path at which a Ready claim can be used."""
        status = self.get("VolumeClaim", claim)["status"]
        expect(status.get("targetPath"), f"claim {claim} is {status.get('state')} and has no status.targetPath")
        return str(status["targetPath"])

    # Bytes.

    def write(self, node: Node, path: str, text: str) -> None:
        node.exec("sh", "-ec", 'cat > "$1" && sync "$1"', "sh", path, stdin=text)

    def read(self, node: Node, path: str) -> str:
        return node.exec("cat", path).stdout

    def expect_text(self, node: Node, path: str, text: str) -> None:
        found = self.read(node, path)
        expect(found == text, f"{path} on {node.name} holds {found!r} and not {text!r}")

    # Calls.

    def calls(self, *rpcs: str, volume: str | None = None, after: int | None = None) -> list[Call]:
        """This scenario's calls, all or those asked for."""
        found = self.driver.calls(self._start if after is None else after)
        return [call for call in found if (not rpcs or call.rpc in rpcs) and volume in (None, call.volume)]

    def locks(self) -> list[Lock]:
        """The Attachments that were made since the scenario began, whoever's they are."""
        return audit.locks(self.cluster, self._log)

    def expect_calls(self, expected: Iterable[str], *, volume: str, after: int | None = None) -> None:
        """The mutating calls for one volume, in order."""
        found = [call.rpc for call in mutating(self.calls(volume=volume, after=after))]
        wanted = list(expected)
        expect(found == wanted, f"the calls for {volume} were {', '.join(found) or 'none'}, not {', '.join(wanted)}")
