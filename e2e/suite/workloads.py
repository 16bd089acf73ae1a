"""Pods and their volumes, as people write them, and what a scenario does with them."""

from __future__ import annotations

from e2e.cluster import ApiError, Node, Problem

from .objects import PLUGIN, Holds, Object
from .world import Failed, World, expect

_CORE = "/api/v1"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
# Whose a StorageClass is: it has no namespace.
_LABEL = "moor.dev/scenario"
# Where the volume is in a Pod.
MOUNT, DEVICE = "/data", "/dev/data"


class Workloads:
    """A scenario's Pods, PersistentVolumeClaims and PersistentVolumes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._api = world.cluster.api
        self._namespace = world.namespace

    # Objects.

    def storage_class(self, *, late: bool = False, **fields: object) -> str:
        """The StorageClass of the scenario, which names the loop driver and nothing more. Returns its name."""
        name = f"{self._namespace}-late" if late else self._namespace
        item = {
            "metadata": {"name": name, "labels": {_LABEL: self._namespace}},
            "provisioner": PLUGIN,
            # By default kubelet gives only a volume whose file system is named to a Pod's fsGroup.
            "parameters": {"csi.storage.k8s.io/fstype": "ext4"},
            "volumeBindingMode": "WaitForFirstConsumer" if late else "Immediate",
            **fields,
        }
        try:
            self._api.post(_CLASSES, item)
        except ApiError as error:
            if error.status != 409:
                raise
        return name

    def claim(
        self,
        name: str = "data",
        *,
        late: bool = False,
        block: bool = False,
        mode: str = "ReadWriteOnce",
        size: str = "64Mi",
        **fields: object,
    ) -> None:
        """A PersistentVolumeClaim; one that waits for no Pod is bound afterwards. `fields` go into its spec."""
        spec = {
            "accessModes": [mode],
            "volumeMode": "Block" if block else "Filesystem",
            "storageClassName": self.storage_class(late=late),
            "resources": {"requests": {"storage": size}},
            **fields,
        }
        self._api.post(self._path("persistentvolumeclaims"), {"metadata": {"name": name}, "spec": spec})
        if not late:
            self.await_bound(name)

    def await_bound(self, name: str, timeout: float = 30) -> Object:
        """The PersistentVolume that a claim is bound to."""
        claim = self.await_claim(name, "to be bound", lambda item: item["status"]["phase"] == "Bound", timeout)
        found: Object = self._api.get(f"{_CORE}/persistentvolumes/{claim['spec']['volumeName']}")
        return found

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
        self._world.await_account()
        self._api.post(self._path("pods"), {"metadata": {"name": name}, "spec": spec})

    def container(self, script: str, *, is_block: bool = False) -> Object:
        """A container that runs a script and has the Pod's volume."""
        found: Object = {"name": "main", "image": self.image(), "command": ["sh", "-c", script]}
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

    def change_claim(self, name: str, spec: Object) -> None:
        self._api.patch(self._path("persistentvolumeclaims", name), {"spec": spec})

    def await_claim(self, name: str, what: str, holds: Holds, timeout: float = 45) -> Object:
        """Waits until a condition holds for a PersistentVolumeClaim; tells what there is instead if it never does."""

        def look() -> Object | None:
            item = self._get("persistentvolumeclaims", name)
            return item if holds(item) else None

        try:
            found = self._world.cluster.wait_for(f"the claim {name} {what}", look, timeout)
        except Problem as problem:
            raise Failed(f"{problem.what}:\n{self._told(name)}") from None
        assert found is not None
        return found

    def set_reclaim_policy(self, volume: str, policy: str) -> None:
        """What becomes of the storage when nobody claims the PersistentVolume any more."""
        self._api.patch(f"{_CORE}/persistentvolumes/{volume}", {"spec": {"persistentVolumeReclaimPolicy": policy}})

    def remove_claims(self, *names: str, timeout: float = 60) -> None:
        """Deletes claims and waits until Kubernetes lets them go, and until their PersistentVolumes have gone too."""
        bound = {self._get("persistentvolumeclaims", name)["spec"].get("volumeName") for name in names}
        for name in names:
            self._api.delete(self._path("persistentvolumeclaims", name))

        def gone() -> bool:
            return not set(names) & set(self._names("persistentvolumeclaims"))

        self._world.cluster.wait_for("the claims to go", gone, timeout)
        self.await_volumes_gone(*bound)

    def await_volumes_gone(self, *names: str) -> None:
        """Until these PersistentVolumes are gone."""
        self._world.cluster.wait_for(f"{', '.join(names)} to go", lambda: not set(names) & self._volumes(), 60)

    def remove_all(self) -> None:
        """What the scenario has left, in the order in which Kubernetes lets it go."""
        pods = self._api.get(self._path("pods"))["items"]
        if any(item["metadata"].get("ownerReferences") for item in pods):
            kinds = "deployments,statefulsets,jobs"
            whole = ("--all", "--cascade=foreground", "--timeout=60s")
            self._world.cluster.kubectl("delete", kinds, "-n", self._namespace, *whole)
        self.remove_pods(*self._names("pods"))
        self.remove_claims(*self._names("persistentvolumeclaims"))
        for item in self._api.get(f"{_CLASSES}?labelSelector={_LABEL}={self._namespace}")["items"]:
            self._api.delete(f"{_CLASSES}/{item['metadata']['name']}")

    def _volumes(self) -> set[str]:
        return {str(item["metadata"]["name"]) for item in self._api.get(f"{_CORE}/persistentvolumes")["items"]}

    # Waiting.

    def await_running(self, *names: str, timeout: float = 60) -> None:
        """Also Pods that are not there yet: those of a StatefulSet."""
        for name in names:
            self._await(name, "to run", lambda name=name: self._runs(name), timeout)  # type: ignore[misc]

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

    def await_words(self, pod: str, script: str, *words: str) -> None:
        """Waits until a script in a Pod prints these words: a Pod that is Ready may be at its first command still."""
        found: list[str] = []

        def says() -> bool:
            found[:] = self.run(pod, f"{script} || true").split()
            return found == [*words]

        try:
            self._world.cluster.wait_for(f"Pod {pod} to print {words}", says, 20)
        except Problem as problem:
            raise Failed(f"{problem.what}, and it prints {found}") from None

    def write(self, pod: str, text: str) -> None:
        self.run(pod, f"echo '{text}' > {MOUNT}/file && sync {MOUNT}/file")

    def expect_text(self, pod: str, text: str) -> None:
        found = self.run(pod, f"cat {MOUNT}/file").strip()
        expect(found == text, f"Pod {pod} reads {found!r} and not {text!r}")

    def uid(self, pod: str) -> str:
        return str(self._get("pods", pod)["metadata"]["uid"])

    def claims_of(self, uid: str) -> list[str]:
        """Names of the VolumeClaims that an agent has made for the Pod with this UID."""
        every = self._api.get("/apis/moor.dev/v1alpha1/volumeclaims")["items"]
        return [str(item["metadata"]["name"]) for item in every if item["spec"].get("pod", {}).get("uid") == uid]

    def image(self) -> str:
        """Any image that is on the nodes and has a shell."""
        return self._world.pods.image_with_tools()

    def _told(self, claim: str) -> str:
        return self._world.cluster.kubectl("describe", "pvc", claim, "-n", self._namespace, check=False).stdout

    # Paths.

    def _names(self, kind: str) -> list[str]:
        return [str(item["metadata"]["name"]) for item in self._api.get(self._path(kind))["items"]]

    def _get(self, kind: str, name: str) -> Object:
        found: Object = self._api.get(self._path(kind, name))
        return found

    def _path(self, kind: str, name: str = "") -> str:
        return f"{_CORE}/namespaces/{self._namespace}/{kind}" + (f"/{name}" if name else "")

    def _runs(self, pod: str) -> bool:
        if pod not in self._names("pods"):
            return False
        status = self._get("pods", pod)["status"]
        states = status.get("containerStatuses", [])
        return status["phase"] == "Running" and bool(states) and all(state["ready"] for state in states)
