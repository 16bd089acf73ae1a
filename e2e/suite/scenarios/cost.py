"""What using a volume costs in API writes, counted in the API server's audit log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.namespace import NAMESPACE

from .. import audit
from ..registry import scenario
from ..world import Failed, World

# After this many seconds it is told what a claim waits for (src/api/conditions.rs).
_PATIENCE = 2
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class Budget:
    """Counts moor's writes during steps, and remembers the steps that cost too much."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.exceeded: list[str] = []
        self._start = audit.position(world.cluster)

    @contextmanager
    def step(self, what: str, allowed: int) -> Iterator[None]:
        start, began = audit.position(self.world.cluster), time.monotonic()
        yield
        # By then a claim that is not Ready says why, which is a write.
        allowed += time.monotonic() - began > _PATIENCE
        counted = audit.about_claims(audit.writes(self.world.cluster, start))
        accepted = [write for write in counted if write.accepted]
        line = f"{what}: {len(accepted)} of {allowed} writes: {audit.told(counted)}"
        self.world.note(line)
        if len(accepted) > allowed:
            self.exceeded.append(line)

    def settle(self) -> None:
        """Fails if anything was too much. Events come when they come, so they are looked for over all steps: there are none."""
        found = audit.writes(self.world.cluster, self._start)
        made = [write for write in found if write.is_event and write.verb == "create"]
        if made:
            self.exceeded.append(f"{len(made)} Events: {audit.told(made)}")
        if self.exceeded:
            raise Failed("\n".join(["over budget:", *self.exceeded]))


@scenario("a claim costs no more API writes than promised")
def write_budget(world: World) -> None:
    world.ready_volume()
    budget = Budget(world)
    for node in (world.first, world.second):
        with budget.step(f"Pending to Ready on {node.name}", 4):
            world.ready_claim("one", node)
        with budget.step("joining", 2):
            world.ready_claim("two", node)
        with budget.step("deletion to gone while another stays", 2):
            world.remove("VolumeClaim", "one")
        with budget.step("deletion to gone", 4):
            world.remove("VolumeClaim", "two")
    budget.settle()


@scenario("an idle system writes nothing but Leases")
def idle(world: World) -> None:
    world.ready_volume()
    world.ready_claim("one", world.first)
    world.ready_claim("two", world.second, volumeName=world.ready_volume("other")["metadata"]["name"])
    budget = Budget(world)
    with budget.step("while every Lease is renewed twice", 0):
        for _ in range(2):
            _await_renewals(world)
    budget.settle()


def _await_renewals(world: World) -> None:
    """Every process of moor's has shown that it is at work."""

    def renewed() -> dict[str, str]:
        items = world.cluster.api.get(_LEASES)["items"]
        return {str(item["metadata"]["name"]): str(item["spec"].get("renewTime")) for item in items}

    before = renewed()
    world.cluster.wait_for(
        "every Lease to be renewed",
        lambda: all(time != before.get(name) for name, time in renewed().items()),
        45,
    )
