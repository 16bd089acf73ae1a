"""A database in a Pod, whose node dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Node

from .. import leaks
from ..objects import Object
from ..pods import AGENT, DRIVER
from ..registry import scenario
from ..trace import LOST, REBOOT
from ..workloads import MOUNT, Workloads
from ..world import World, expect
from .charts import CLASS
from .losses import SILENCE, TAINT, back_again, lost_and_other, tell

# Who finds the file locked waits.
SQLITE = f"sqlite3 -cmd '.timeout 20000' {MOUNT}/bank.db"
# Each line is the number of an entry that is committed. An entry is larger than a page, so that a commit is many writes.
SCRIPT = f"""
{SQLITE} 'create table if not exists entry(n integer primary key, what blob)'
while :; do
  {SQLITE} 'insert into entry(what) values (randomblob(9000)); select max(n) from entry'
  sleep 0.02
done
"""
POD = "bank-0"


@scenario("a database's node crashes: its next Pod waits until the node is out of service, and has every commit", limit=300)
def database(world: World) -> None:
    work = Workloads(world)
    lost, other = lost_and_other(world)
    with _only(world, lost):
        world.cluster.api.post(f"/apis/apps/v1/namespaces/{world.namespace}/statefulsets", _stateful_set(work))
        # A kubelet that could not register drivers, as on a node that has just been cut off, tries again within 2 minutes.
        work.await_running(POD, timeout=150)
    committed = world.cluster.wait_for("some commits", lambda: _committed(world, 20), 60)
    lost.crash()
    for role in (AGENT, DRIVER, REBOOT):
        tell(world, role, lost)
    with back_again(world, lost), _only(world, other):
        # As people do, who want the Pod back.
        world.cluster.kubectl("delete", "pod", POD, "-n", world.namespace, "--force", "--grace-period=0")
        told = work.await_event(POD, "WaitsForVolume", lost.name, timeout=60)
        world.note(f"the waiting Pod was told: {told}")
        phase = world.cluster.get("pod", POD, "-n", world.namespace)["status"]["phase"]
        expect(phase == "Pending", f"the Pod is {phase} though nobody has said that {lost.name} is off")
        tell(world, LOST, lost)
        world.cluster.kubectl("taint", "node", lost.name, TAINT)
        work.await_running(POD, timeout=SILENCE)
        sound = work.run(POD, f"{SQLITE} 'pragma integrity_check'").strip()
        expect(sound == "ok", f"the database says: {sound}")
        found = int(work.run(POD, f"{SQLITE} 'select count(*) from entry where n <= {committed}'"))
        expect(found == committed, f"of {committed} entries that were committed {found} are there")
    world.cluster.wait_for("the node to clean up", lambda: not leaks.records(lost.directory / "moor"), 120, 0.5)


def _stateful_set(work: Workloads) -> Object:
    claim = {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    labels = {"app": "bank"}
    return {
        "metadata": {"name": "bank"},
        "spec": {
            "serviceName": "bank",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [work.container(SCRIPT)], "terminationGracePeriodSeconds": 1},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


@contextmanager
def _only(world: World, node: Node) -> Iterator[None]:
    """Pods are scheduled to this node and to no other."""
    others = [each.name for each in world.cluster.nodes if each is not node]
    world.cluster.kubectl("cordon", *others)
    try:
        yield
    finally:
        world.cluster.kubectl("uncordon", *others)


def _committed(world: World, least: int) -> int:
    """The number of the last entry that the Pod knows to be committed, once there are so many."""
    last = world.cluster.kubectl("logs", POD, "-n", world.namespace, "--tail=1", check=False).stdout.strip()
    number = int(last) if last.isdigit() else 0
    return number if number >= least else 0

