"""What people have already: a chart that only names a StorageClass, and the files of examples/."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Node, Problem
from e2e.cluster.paths import REPOSITORY

from .. import leaks
from ..helm import helm
from ..objects import Object, is_ready
from ..registry import scenario
from ..workloads import DEVICE, MOUNT, Workloads
from ..world import Failed, World, expect

CHART = REPOSITORY / "e2e" / "charts" / "ordinary"
RELEASE = "ordinary"
EXAMPLES = REPOSITORY / "examples"
# The StorageClass that moor's chart makes for the loop driver.
CLASS = "moor-loop"
SHARDS = ("shard-0", "shard-1", "shard-2")
NAMES = ("web", "scratch", "raw", *SHARDS)
# That every example names. The test cluster reaches no registry.
IMAGE = "busybox:1.37"


@scenario("an ordinary chart: its data survives a drain, and with its claims everything goes", limit=240)
def ordinary_chart(world: World) -> None:
    before = leaks.leftovers(world.cluster)
    work = Workloads(world)
    settings = ("--set", f"storageClassName={CLASS}", "--set", f"image={work.image()}")
    helm(world, world.namespace, "install", RELEASE, str(CHART), *settings, "--wait", "--wait-for-jobs", "--timeout", "2m")
    drained, other = _busier_first(world)
    moved = {name for name in NAMES if _pod(world, name)["spec"]["nodeName"] == drained.name}
    with _drained(world, drained):
        for name in NAMES:
            _await_ready(world, name)
        strays = [name for name in NAMES if _pod(world, name)["spec"]["nodeName"] != other.name]
        expect(not strays, f"on {drained.name}, which was drained, are {strays}")
    world.note(f"{len(moved)} of {len(NAMES)} Pods were drained from {drained.name}")
    for name in NAMES:
        _expect_starts(world, work, name, 2 if name in moved and name != "scratch" else 1)
    work.running_pod("reader", "report", drained)
    work.expect_text("reader", "report")
    work.remove_pods("reader")
    helm(world, world.namespace, "uninstall", RELEASE, "--wait", "--timeout", "1m")
    # What a StatefulSet's templates have made is the user's to delete; the chart's own claims Helm has deleted.
    work.remove_claims(*(f"data-{name}" for name in SHARDS))
    what = "files, PersistentVolumes, Volumes, VolumeHandles, mounts and loop devices to go"
    world.cluster.wait_for(what, lambda: not leaks.leftovers(world.cluster) - before, 30, 0.2)


def _pods(world: World, name: str) -> list[Object]:
    """The Pods of an `app`, or that of this name in the StatefulSet, without those on their way out."""
    items = world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}/pods")["items"]
    return [
        item
        for item in items
        if name in (item["metadata"]["name"], item["metadata"]["labels"].get("app"))
        and "deletionTimestamp" not in item["metadata"]
    ]


def _pod(world: World, name: str) -> Object:
    found = _pods(world, name)
    expect(len(found) == 1, f"there are {len(found)} Pods of {name}")
    return found[0]


def _busier_first(world: World) -> list[Node]:
    """The node with more of the chart's Pods, then the other one."""
    nodes = [_pod(world, name)["spec"]["nodeName"] for name in NAMES]
    return sorted(world.cluster.nodes, key=lambda node: nodes.count(node.name), reverse=True)


@contextmanager
def _drained(world: World, node: Node) -> Iterator[None]:
    """As an administrator does it, so with moor's own controller."""
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
    try:
        world.cluster.kubectl("drain", node.name, *flags)
        yield
    finally:
        world.cluster.kubectl("uncordon", node.name)


def _await_ready(world: World, name: str) -> None:
    """Looks at the Pods: what a Deployment says of them may be of before the drain."""
    try:
        world.cluster.wait_for(f"{name} to be ready", lambda: [pod for pod in _pods(world, name) if is_ready(pod)], 60)
    except Problem as problem:
        told = world.cluster.kubectl("describe", "pods,pvc", f"--namespace={world.namespace}", check=False).stdout
        raise Failed(f"{problem.what}:\n{told}") from None


def _expect_starts(world: World, work: Workloads, name: str, count: int) -> None:
    """Each Pod adds one to what it finds: a line with its own name, or the number on the device."""
    pod = str(_pod(world, name)["metadata"]["name"])
    if name == "raw":
        work.await_words(pod, f"head -c 4096 {DEVICE} | tr -d '\\0'", str(count))
    else:
        work.await_words(pod, f"cat {MOUNT}/starts", *[name] * count)


@scenario("the examples for Pods work as they are, and leave nothing", limit=180)
def examples(world: World) -> None:
    work = Workloads(world)
    every = {path.stem for path in EXAMPLES.glob("*.yaml") if IMAGE in path.read_text()}
    expect(every == {*_OF_PODS, "clone", "static-volume"}, f"the examples with Pods are {sorted(every)}")
    _apply(world, work, *_OF_PODS)
    _wait(world, "pod/first", "pod/scratch", "pod/raw", "pod/exported", "pod/inline", until="condition=Ready")
    _wait(world, "deployment/web", until="condition=Available")
    _wait(world, "statefulset/ledger", "statefulset/notes", until="jsonpath={.status.readyReplicas}=2")
    _wait(world, "job/report", until="condition=Complete")
    work.await_words("first", f"cat {MOUNT}/hello", "hello")
    work.await_words("exported", f"cat {MOUNT}/hello", "hello")
    work.await_words("inline", f"cat {MOUNT}/hello", "hello")
    for name in ("notes-0", "notes-1"):
        work.await_words(name, f"cat {MOUNT}/starts", name)
    _delete(world, work, *_OF_PODS[1:])
    # A copy of what Pod first goes on using.
    _apply(world, work, "clone")
    _wait(world, "pod/second", until="condition=Ready")
    work.await_words("second", f"cat {MOUNT}/hello", "hello")
    _delete(world, work, "clone")
    work.remove_pods("first")
    volume, handle = _outliving(world, work)
    _apply(world, work, "static-volume", handle=handle)
    _wait(world, "pod/existing", until="condition=Ready")
    work.await_words("existing", f"cat {MOUNT}/hello", "hello")
    _delete(world, work, "static-volume", handle=handle)
    work.set_reclaim_policy(volume, "Delete")
    work.await_volumes_gone(volume)


_OF_PODS = (
    "pod",
    "deployment",
    "statefulset",
    "job",
    "ephemeral-volume",
    "block-pod",
    "exported-volume",
    "inline-volume",
    "statefulset-inline",
)


def _text(world: World, work: Workloads, names: tuple[str, ...], handle: str) -> str:
    text = "---\n".join((EXAMPLES / f"{name}.yaml").read_text() for name in names)
    changes = {IMAGE: work.image(), "namespace: default": f"namespace: {world.namespace}", "put-the-volume-id-here": handle}
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def _apply(world: World, work: Workloads, *names: str, handle: str = "") -> None:
    world.cluster.kubectl("apply", "-n", world.namespace, "-f", "-", stdin=_text(world, work, names, handle))


def _delete(world: World, work: Workloads, *names: str, handle: str = "") -> None:
    words = ("delete", "-n", world.namespace, "-f", "-", "--ignore-not-found", "--timeout=60s")
    world.cluster.kubectl(*words, stdin=_text(world, work, names, handle))


def _wait(world: World, *names: str, until: str) -> None:
    for name in names:
        words = (f"--for={until}", name, "-n", world.namespace, "--timeout=60s")
        done = world.cluster.kubectl("wait", *words, check=False)
        if done.returncode != 0:
            told = world.cluster.kubectl("describe", "pods,pvc", "-n", world.namespace, check=False).stdout
            raise Failed(f"{name}: {done.stderr}\n{told}")


def _outliving(world: World, work: Workloads) -> tuple[str, str]:
    """What the example says: the volume of the first Pod outlives its claim. The PersistentVolume, and the driver's id."""
    volume = work.await_bound("first")
    name = str(volume["metadata"]["name"])
    work.set_reclaim_policy(name, "Retain")
    _delete(world, work, "pod")
    return name, str(volume["spec"]["csi"]["volumeHandle"])
