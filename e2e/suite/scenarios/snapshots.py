"""What a Snapshot says of itself before it is Ready. That it has the bytes of its moment is in edits.py."""

from __future__ import annotations

from ..registry import scenario
from ..world import World, expect


@scenario("a snapshot that its driver works on for long is asked for until it is ready", namespace="snapshots-slow")
def slow(world: World) -> None:
    world.ready_volume()
    world.snapshot("kept", volumeName="data", parameters={"readyAfterSeconds": "6"})
    world.await_reason("Snapshot", "kept", "NotReadyToUse", "snap-")
    world.volume("restored", source={"snapshotName": "kept"})
    world.await_reason("Volume", "restored", "SourceNotUsable", "Snapshot kept is not Ready")
    listed = world.cluster.kubectl("get", "snapshots", "-n", world.namespace, "--no-headers").stdout
    expect("NotReadyToUse" in listed and "Created" in listed, f"kubectl get shows: {listed}")
    world.delete("Volume", "data")
    world.await_reason("Volume", "data", "InUse", "Snapshot kept")
    world.await_ready("Snapshot", "kept")
    world.await_gone("Volume", "data")
    world.await_ready("Volume", "restored")
