"""A driver that moor runs itself: from a Plugin's templates, looked after, rolled, and taken away when nobody needs it."""

from __future__ import annotations

import signal
import time

from .. import adopted_driver as adopted
from .. import managed_driver as managed
from .. import objects, trace, traffic
from ..driver import LoopDriver
from ..managed_driver import NAME
from ..registry import scenario
from ..workloads import Workloads
from ..world import World, expect


@scenario("two drivers at once: one that moor runs, its controller moved between nodes under traffic, and one by its socket", limit=240)
def moved_under_traffic(world: World) -> None:
    with adopted.running(world) as other, managed.running(world) as driver:
        plugin = managed.await_deployed(world)
        every = f"{len(world.cluster.nodes)}/{len(world.cluster.nodes)}"
        managed.expect_counts(plugin, "1/1", every)
        managed.expect_counts(world.get("Plugin", adopted.NAME), every, every)
        world.note(f"deployed: {objects.condition(plugin, 'Deployed')['message']}")
        world.ready_volume("kept", pluginName=NAME)
        world.ready_claim("kept", world.second, volumeName="kept")
        world.write(world.second, f"{world.target('kept')}/file", "before")
        with (
            traffic.running("moved", traffic.of_claims(world, NAME)) as moved,
            traffic.running("adopted", traffic.of_claims(world, adopted.NAME)) as beside,
        ):
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
        world.note(f"volume, claim, and both gone: {traffic.told(moved, beside)}")
        world.expect_text(world.second, f"{world.target('kept')}/file", "before")
        world.remove("VolumeClaim", "kept")
        world.remove("Volume", "kept")
        _expect_order(world, driver, other)


@scenario("a driver that moor runs is rolled, both its parts, under claims and Pods that come and go", limit=300)
def rolled_under_traffic(world: World) -> None:
    with managed.running(world) as driver:
        managed.await_deployed(world)
        workloads = Workloads(world)
        workloads.storage_class(provisioner=NAME)
        workloads.claim("kept")
        workloads.running_pod("kept", "kept", world.second)
        workloads.write("kept", "before")
        with (
            traffic.running("claims", traffic.of_claims(world, NAME)) as claims,
            traffic.running("pods", traffic.of_pods(world, NAME)) as pods,
        ):
            for number, part in enumerate(("node", "controller", "node")):
                time.sleep(3)
                before = {pod["metadata"]["uid"] for pod in managed.pods(world, part)}
                selector = {"nodeSelector": managed.on(world.first.name)} if part == "controller" else {}
                template = managed.template(world, part, **selector)
                template["metadata"] = {"annotations": {"rolled": str(number)}}
                managed.patch(world, {part: {"template": template}})
                managed.await_deployed(world)
                world.cluster.wait_for(
                    "the Pods before to be gone",
                    lambda: not before & {pod["metadata"]["uid"] for pod in managed.pods(world, part)},  # noqa: B023
                    60,
                )
            time.sleep(3)
        world.note(f"rolled three times: {traffic.told(claims, pods)}")
        workloads.expect_text("kept", "before")
        workloads.write("kept", "after")
        workloads.remove_all()
        _expect_order(world, driver)


def _expect_order(world: World, *drivers: LoopDriver) -> None:
    for driver in drivers:
        violations = trace.check(driver.calls(), [], locks=world.locks(), finished=True)
        expect(not violations, "; ".join(str(one) for one in violations))


@scenario("a node driver that moor runs is rolled under a claim, and the Plugin waits for who uses it", limit=180)
def rolled_and_deleted(world: World) -> None:
    with managed.running(world):
        managed.await_deployed(world)
        world.ready_volume("used", pluginName=NAME)
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
            lambda item: objects.condition(item, "Removable").get("reason") == "InUse",
        )  # fmt: skip
        message = objects.condition(waits, "Removable")["message"]
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
