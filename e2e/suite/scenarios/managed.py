"""A driver that moor runs itself: from a Plugin's templates, looked after, rolled, and taken away when nobody needs it."""

from __future__ import annotations

import signal
import threading
import time

from .. import managed_driver as managed
from .. import objects, trace
from ..managed_driver import NAME
from ..registry import scenario
from ..world import World, expect


def _volume(world: World, name: str) -> None:
    world.ready_volume(name, pluginName=NAME)


@scenario("a driver that moor runs, its controller in an emptyDir: moved between nodes under traffic", limit=240)
def moved_under_traffic(world: World) -> None:
    with managed.running(world) as driver:
        plugin = managed.await_deployed(world)
        managed.expect_counts(plugin, "1/1", f"{len(world.cluster.nodes)}/{len(world.cluster.nodes)}")
        world.note(f"deployed: {objects.condition(plugin, 'Deployed')['message']}")
        _volume(world, "kept")
        world.ready_claim("kept", world.second, volumeName="kept")
        world.write(world.second, f"{world.target('kept')}/file", "before")
        stop, failed, slowest = threading.Event(), [], [0.0]

        def traffic() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                name = f"moves-{number}"
                start = time.monotonic()
                try:
                    _volume(world, name)
                    world.ready_claim(name, world.cluster.nodes[number % 2], volumeName=name)
                    world.remove("VolumeClaim", name)
                    world.remove("Volume", name)
                except Exception as error:  # noqa: BLE001
                    failed.append(f"{name}: {error}")
                    return
                slowest[0] = max(slowest[0], time.monotonic() - start)

        busy = threading.Thread(target=traffic)
        busy.start()
        try:
            for node in (world.second, world.first):
                time.sleep(3)
                template = managed.template(world, "controller", nodeSelector=managed.on(node.name))
                managed.patch(world, {"controller": {"template": template}})
                managed.await_deployed(world)
                (pod,) = world.cluster.wait_for(
                    "the Pod before to be gone", lambda: len(found := managed.pods(world, "controller")) == 1 and found, 60
                )
                expect(pod["spec"]["nodeName"] == node.name, f"the controller is on {pod['spec']['nodeName']}")
            time.sleep(3)
        finally:
            stop.set()
            busy.join()
        expect(not failed, "; ".join(failed))
        world.note(f"the slowest of volume, claim, and both gone took {slowest[0]:.1f} s")
        world.expect_text(world.second, f"{world.target('kept')}/file", "before")
        world.remove("VolumeClaim", "kept")
        world.remove("Volume", "kept")
        violations = trace.check(driver.calls(), [], finished=True)
        expect(not violations, "; ".join(str(one) for one in violations))


@scenario("a node driver that moor runs is rolled under a claim, and the Plugin waits for who uses it", limit=180)
def rolled_and_deleted(world: World) -> None:
    with managed.running(world):
        managed.await_deployed(world)
        _volume(world, "used")
        world.ready_claim("used", world.first, volumeName="used")
        before = {pod["metadata"]["uid"] for pod in managed.pods(world, "node")}
        template = managed.template(world, "node")
        template["metadata"] = {"annotations": {"rolled": "once"}}
        managed.patch(world, {"node": {"template": template}})
        managed.await_deployed(world)
        expect(not before & {pod["metadata"]["uid"] for pod in managed.pods(world, "node")}, "the Pods are the same")
        world.write(world.first, f"{world.target('used')}/file", "still mounted")
        # What would be lost is said, and what runs goes on.
        template["spec"]["containers"][0]["argz"] = []
        managed.patch(world, {"node": {"template": template}})
        refused = world.await_that(
            "Plugin", NAME, "to refuse the template",
            lambda item: objects.condition(item, "Deployed").get("reason") == "TemplateRefused",
        )  # fmt: skip
        message = objects.condition(refused, "Deployed")["message"]
        expect("spec.node.template.spec.containers[0].argz: Pods have no such field" in message, message)
        world.delete("Plugin", NAME)
        waits = world.await_that(
            "Plugin", NAME, "to wait",
            lambda item: objects.condition(item, "Deployed").get("reason") == "InUse",
        )  # fmt: skip
        message = objects.condition(waits, "Deployed")["message"]
        expect(message.endswith(f"not needed for Volume {world.namespace}/used"), message)
        world.remove("VolumeClaim", "used")
        world.remove("Volume", "used")


@scenario("a driver that moor runs and that does not answer any more is started anew", limit=180)
def restarted(world: World) -> None:
    with managed.running(world, healthTimeoutSeconds=2):
        managed.await_deployed(world)
        (pod,) = managed.pods(world, "controller")
        processes = [one for one in world.pods.running("loop-driver", world.first.name) if one.pod == pod["metadata"]["name"]]
        expect(len(processes) == 1, f"{len(processes)} processes are in Pod {pod['metadata']['name']}")
        processes[0].kill(signal.SIGSTOP)
        start = time.monotonic()
        world.await_that("Plugin", NAME, "to be unhealthy", lambda item: not objects.is_ready(item), 40)
        world.note(f"unhealthy {time.monotonic() - start:.1f} s after it was stopped")

        def is_another() -> bool:
            found = managed.pods(world, "controller")
            return bool(found) and all(one["metadata"]["uid"] != pod["metadata"]["uid"] for one in found)

        world.cluster.wait_for("another Pod", is_another, 90)
        managed.await_deployed(world)
        world.note(f"another one serves {time.monotonic() - start:.1f} s after")
        events = world.cluster.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        told = [one["note"] for one in events if one["reason"] == "Restarted" and one["regarding"]["name"] == NAME]
        expect(len(told) == 1 and pod["metadata"]["name"] in told[0], f"Events of restarts: {told}")
