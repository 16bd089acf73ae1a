"""Pods are started, in turn of each kind, and it is noted when they are Ready and what was written for them."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from e2e.cluster import ApiError, Cluster, parts, say
from e2e.suite import audit, objects
from e2e.suite.pods import Pods

from .kinds import NAMESPACE, Kind

_CORE = "/api/v1"
_PODS = f"{_CORE}/namespaces/{NAMESPACE}/pods"
_CLAIMS = f"{_CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims"
_VOLUMES = f"{_CORE}/persistentvolumes"
_READY = "jsonpath={.object.metadata.name} {.object.status.conditions[?(@.type=='Ready')].status}{'\\n'}"
# Who writes whether or not a Pod starts.
_BESIDE = frozenset({"leases", "nodes", "nodes/status", "configmaps", "csinodes"})


@dataclass
class Figures:
    """What was seen of one kind of Pod."""

    kind: Kind
    at_once: int
    seconds: list[float] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the Pods was faster than the first, a quarter slower than the second."""
        if len(self.seconds) < 2:
            return self.median, self.median
        first, _, third = statistics.quantiles(self.seconds, method="inclusive")
        return first, third

    @property
    def p99(self) -> float:
        """The largest, of fewer than a hundred."""
        return sorted(self.seconds)[math.ceil(0.99 * len(self.seconds)) - 1]

    @property
    def writes(self) -> float:
        """For each Pod."""
        return self.written.total() / len(self.seconds)

    @property
    def reads(self) -> float:
        """Of moor, for each Pod."""
        return self.read.total() / len(self.seconds)

    def as_json(self) -> dict[str, object]:
        count = len(self.seconds)
        return {
            "kind": self.kind.name,
            "title": self.kind.title,
            "atOnce": self.at_once,
            "medianSeconds": round(self.median, 3),
            "quartileSeconds": [round(each, 3) for each in self.quartiles],
            "p99Seconds": round(self.p99, 3),
            "seconds": [round(each, 3) for each in self.seconds],
            "writesPerPod": round(self.writes, 2),
            "writes": {what: round(written / count, 2) for what, written in self.written.most_common()},
            "readsPerPod": round(self.reads, 2),
            "reads": {what: round(read / count, 2) for what, read in self.read.most_common()},
        }


def find(figures: Iterable[Figures], kind: str, at_once: int) -> Figures:
    """The figures of the kind of this name, of so many Pods at once."""
    return next(each for each in figures if each.kind.name == kind and each.at_once == at_once)


class Bench:
    """Measures on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._image = Pods(cluster).image_with_tools()
        self._numbers = itertools.count(1)

    def measure(self, kinds: Sequence[Kind], *, at_once: int, times: int) -> list[Figures]:
        """Each kind in turn, so that what else the machine does meets all of them. The first turn is not counted."""
        figures = [Figures(kind, at_once) for kind in kinds]
        for turn in range(times + 1):
            say(f"{at_once} at once, {turn} of {times}")
            for each in figures:
                seconds, written, read = self._burst(each.kind, at_once)
                if turn > 0:
                    each.seconds += seconds
                    each.written += written
                    each.read += read
        return figures

    def _burst(self, kind: Kind, count: int) -> tuple[list[float], Counter[str], Counter[str]]:
        names = [f"{kind.name}-{next(self._numbers)}" for _ in range(count)]
        has_volume = bool(kind.driver or kind.storage_class)
        if has_volume:
            self._make_claims(kind, names)
        if kind.used:
            self._start(names, has_volume=True)
            self._delete([f"{_PODS}/{name}" for name in names])
            self._await_rest()
        before = audit.position(self._cluster)
        seconds = self._start(names, has_volume=has_volume)
        asked = audit.requests_of_others(self._cluster, before)
        written = _counted(request for request in asked if not request.is_read)
        read = _counted(request for request in asked if request.is_read and request.by_moor)
        self._remove(kind, names, has_volume=has_volume)
        return seconds, written, read

    def _start(self, names: Sequence[str], *, has_volume: bool) -> list[float]:
        """Starts Pods at once. Returns how long each took until it was Ready."""
        with self._watching() as ready, ThreadPoolExecutor(max_workers=len(names)) as pool:
            start = time.monotonic()
            list(pool.map(lambda name: self._api.post(_PODS, self._pod(name, has_volume=has_volume)), names))
            self._cluster.wait_for("Pods to be Ready", lambda: ready.keys() >= set(names), 180, 0.01)
        return [ready[name] - start for name in names]

    def _await_rest(self) -> None:
        """Until nothing of Pods is held or undone any more: that is not to be counted for the next ones."""
        kinds = [objects.collection(kind) for kind in ("VolumeClaim", "Attachment")]
        for kind in kinds:
            self._await_none(kind)

    def _pod(self, name: str, *, has_volume: bool) -> dict[str, object]:
        container: dict[str, object] = {"name": "main", "image": self._image, "command": ["sleep", "infinity"]}
        spec: dict[str, object] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        if has_volume:
            container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        return {"metadata": {"name": name}, "spec": spec}

    def _make_claims(self, kind: Kind, names: Sequence[str]) -> None:
        if kind.driver:
            for name in names:
                self._api.post(_VOLUMES, kind.volume(name))
            # One that is claimed before kube-controller-manager has seen it is bound at its next look at everything.
            volumes = {f"{NAMESPACE}-{name}" for name in names}
            self._cluster.wait_for("the volumes to be available", lambda: self._in(_VOLUMES, "Available") >= volumes, 120, 0.1)
        for name in names:
            self._api.post(_CLAIMS, kind.claim(name))
        if not kind.late:
            self._cluster.wait_for("the claims to be bound", lambda: self._in(_CLAIMS, "Bound") >= set(names), 120, 0.1)

    def _in(self, path: str, phase: str) -> set[str]:
        """Names of those that are in this phase."""
        items = self._api.get(path)["items"]
        return {item["metadata"]["name"] for item in items if item.get("status", {}).get("phase") == phase}

    @contextmanager
    def _watching(self) -> Iterator[dict[str, float]]:
        """When each Pod was Ready, by name."""
        command = [
            str(parts.program("kubectl")), f"--kubeconfig={self._cluster.kubeconfig}",
            "get", "pods", "-n", NAMESPACE, "--watch", "--output-watch-events", "-o", _READY,
        ]  # fmt: skip
        ready: dict[str, float] = {}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        lines = process.stdout

        def collect() -> None:
            for line in lines:
                name, _, is_ready = line.strip().partition(" ")
                if is_ready == "True":
                    ready.setdefault(name, time.monotonic())

        reader = threading.Thread(target=collect, daemon=True)
        reader.start()
        try:
            # Without a Pod there is no line to wait for. What a watch finds when it begins it tells as well.
            yield ready
        finally:
            process.terminate()
            process.wait(timeout=10)
            reader.join(timeout=10)

    def _remove(self, kind: Kind, names: Sequence[str], *, has_volume: bool) -> None:
        paths = [f"{_PODS}/{name}" for name in names]
        self._delete(paths)
        if not has_volume:
            return
        self._await_rest()
        bound = [self._api.get(f"{_CLAIMS}/{name}")["spec"]["volumeName"] for name in names]
        self._delete([f"{_CLAIMS}/{name}" for name in names])
        volumes = [f"{_VOLUMES}/{name}" for name in bound]
        if kind.driver:
            self._delete(volumes)
        self._await_gone(volumes)
        # Those of PersistentVolumes that were written by hand go after them.
        self._await_none(objects.collection("Volume"))

    def _await_none(self, path: str) -> None:
        self._cluster.wait_for(f"{path} to have nothing", lambda: not self._api.get(path)["items"], 120, 0.2)

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._api.delete(path)
        self._await_gone(paths)

    def _await_gone(self, paths: Sequence[str]) -> None:
        self._cluster.wait_for("what was made to be gone", lambda: not any(self._exists(path) for path in paths), 120, 0.2)

    def _exists(self, path: str) -> bool:
        try:
            self._api.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True


def _counted(found: Iterable[audit.Request]) -> Counter[str]:
    counted = (request for request in found if request.accepted and request.resource not in _BESIDE)
    return Counter(f"{request.account} {request.verb} {request.resource}" for request in counted)
