"""Pods and their volumes, as people write them, and what a scenario does with them."""

from __future__ import annotations

from e2e.cluster import Node, Problem

from .objects import PLUGIN, Object
from .pods import AGENT
from .world import Failed, World, expect

_CORE = "/api/v1"
# Where the volume is in a Pod.
MOUNT, DEVICE = "/data", "/dev/data"


class Workloads:
    """A scenario's Pods, PersistentVolumeClaims and PersistentVolumes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._api = world.cluster.api
        self._namespace = world.namespace

    # Objects.

    def static_volume(self, name: str, handle: str, *, block: bool = False, mode: str = "ReadWriteOnce") -> None:
        """A PersistentVolume for storage that exists, and the claim that is bound to it."""
        volume_mode = "Block" if block else "Filesystem"
        source: Object = {"driver": PLUGIN, "volumeHandle": handle}
        if not block:
            source["fsType"] = "ext4"
        common = {"accessModes": [mode], "volumeMode": volume_mode, "storageClassName": ""}
        volume = {
            "metadata": {"name": self._volume_name(name)},
            "spec": {
                **common,
                "capacity": {"storage": "64Mi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": source,
                "claimRef": {"namespace": self._namespace, "name": name},
            },
        }
        claim = {
            "metadata": {"name": name},
            "spec": {
                **common,
                "volumeName": self._volume_name(name),
                "resources": {"requests": {"storage": "64Mi"}},
            },
        }
        self._api.post(f"{_CORE}/persistentvolumes", volume)
        self._api.post(self._path("persistentvolumeclaims"), claim)
        self._world.cluster.wait_for(
            f"the claim {name} to be bound",
            lambda: self._get("persistentvolumeclaims", name)["status"]["phase"] == "Bound",
            30,
        )

    def pod(self, name: str, claim: str, node: Node | None = None, **fields: object) -> None:
        """A Pod that uses a claim and waits; `fields` go into its spec."""
        bound = self._get("persistentvolumeclaims", claim)
        is_block = bound["spec"].get("volumeMode") == "Block"
        spec: Object = {
            "containers": [self.container("sleep infinity", is_block=is_block)],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            "terminationGracePeriodSeconds": 0,
            **fields,
        }
        if node is not None:
            spec["nodeName"] = node.name
        account = "the default service account of the namespace"
        self._world.cluster.wait_for(account, lambda: self._names("serviceaccounts"), 30)
        self._api.post(self._path("pods"), {"metadata": {"name": name}, "spec": spec})

    def container(self, script: str, *, is_block: bool = False) -> Object:
        """A container that runs a script and has the Pod's volume."""
        found: Object = {"name": "main", "image": self._image(), "command": ["sh", "-c", script]}
        if is_block:
            found["volumeDevices"] = [{"name": "data", "devicePath": DEVICE}]
        else:
            found["volumeMounts"] = [{"name": "data", "mountPath": MOUNT}]
        return found

    def running_pod(self, name: str, claim: str, node: Node | None = None, **fields: object) -> None:
        self.pod(name, claim, node, **fields)
        self.await_running(name)

    def delete_pod(self, name: str) -> None:
        """Asks for it and does not wait."""
        self._api.delete(self._path("pods", name))

    def remove_pods(self, *names: str) -> None:
        for name in names:
            self.delete_pod(name)
        for name in names:
            self.await_pod_gone(name)

    def remove_all(self) -> None:
        """What the scenario has left, in the order in which Kubernetes lets it go."""
        self.remove_pods(*self._names("pods"))
        claims = self._names("persistentvolumeclaims")
        for name in claims:
            self._api.delete(self._path("persistentvolumeclaims", name))
        for item in self._api.get(f"{_CORE}/persistentvolumes")["items"]:
            if item["spec"].get("claimRef", {}).get("namespace") == self._namespace:
                self._api.delete(f"{_CORE}/persistentvolumes/{item['metadata']['name']}")
        self._world.cluster.wait_for("the claims to go", lambda: not self._names("persistentvolumeclaims"), 60)

    # Waiting.

    def await_running(self, *names: str, timeout: float = 60) -> None:
        for name in names:
            self._await(name, "to run", lambda name=name: _runs(self._get("pods", name)), timeout)  # type: ignore[misc]

    def await_pod_gone(self, name: str, timeout: float = 60) -> None:
        self._await(name, "to be gone", lambda: name not in self._names("pods"), timeout)

    def await_event(self, pod: str, reason: str, *words: str, timeout: float = 30) -> str:
        """Waits for an Event on a Pod that has all the words, and returns what it says."""

        def find() -> str:
            notes = self.events(pod, reason)
            return next((note for note in notes if all(word in note for word in words)), "")

        try:
            return str(self._world.cluster.wait_for(f"an Event {reason} on Pod {pod}", find, timeout))
        except Problem as problem:
            raise Failed(f"{problem.what} with {words}: {self.events(pod, reason)}") from None

    def events(self, pod: str, reason: str) -> list[str]:
        found = self._api.get(self._path("events"))["items"]
        about = [item for item in found if item["involvedObject"]["name"] == pod and item["reason"] == reason]
        return [str(item["message"]) for item in about]

    def _await(self, pod: str, what: str, holds: object, timeout: float) -> None:
        try:
            self._world.cluster.wait_for(f"Pod {pod} {what}", holds, timeout, 0.05)  # type: ignore[arg-type]
        except Problem as problem:
            told = self._world.cluster.kubectl("describe", "pod", pod, "-n", self._namespace, check=False).stdout
            raise Failed(f"{problem.what}:\n{told}") from None

    # Inside.

    def run(self, pod: str, script: str) -> str:
        """The output of a shell script in a Pod."""
        done = self._world.cluster.kubectl("exec", "-n", self._namespace, pod, "--", "sh", "-ec", script)
        return done.stdout

    def write(self, pod: str, text: str) -> None:
        self.run(pod, f"echo '{text}' > {MOUNT}/file && sync {MOUNT}/file")

    def expect_text(self, pod: str, text: str) -> None:
        found = self.run(pod, f"cat {MOUNT}/file").strip()
        expect(found == text, f"Pod {pod} reads {found!r} and not {text!r}")

    def uid(self, pod: str) -> str:
        return str(self._get("pods", pod)["metadata"]["uid"])

    def claim_of(self, pod: str) -> Object:
        """The VolumeClaim that the agent has made for a Pod."""
        uid = self.uid(pod)
        every = self._api.get("/apis/moor.dev/v1alpha1/volumeclaims")["items"]
        found = [item for item in every if item["spec"].get("pod", {}).get("uid") == uid]
        expect(len(found) == 1, f"{len(found)} VolumeClaims for Pod {pod}")
        return dict(found[0])

    def _image(self) -> str:
        """Any image that is on the nodes and has a shell."""
        agent = self._world.pods.objects(AGENT)[0]
        return str(agent["spec"]["containers"][0]["image"])

    # Paths.

    def _volume_name(self, claim: str) -> str:
        return f"{self._namespace}-{claim}"

    def _names(self, kind: str) -> list[str]:
        return [str(item["metadata"]["name"]) for item in self._api.get(self._path(kind))["items"]]

    def _get(self, kind: str, name: str) -> Object:
        found: Object = self._api.get(self._path(kind, name))
        return found

    def _path(self, kind: str, name: str = "") -> str:
        return f"{_CORE}/namespaces/{self._namespace}/{kind}" + (f"/{name}" if name else "")


def _runs(pod: Object) -> bool:
    states = pod["status"].get("containerStatuses", [])
    return pod["status"]["phase"] == "Running" and bool(states) and all(state["ready"] for state in states)
