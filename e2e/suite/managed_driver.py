"""The loop driver as moor runs it itself, from the templates of a Plugin: a controller and a node driver, apart."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.namespace import NAMESPACE
from e2e.cluster.node_config import SHARED, SHARED_SOURCE

from . import objects
from .driver import LoopDriver
from .objects import Object
from .world import World, expect

NAME = "split.moor.dev"
CONTROLLER, NODE = f"plugin-{NAME}-controller", f"plugin-{NAME}-node"
# Below the folder that all nodes share: where the drivers of scenarios keep their volumes.
FOLDER = "split"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=moor.dev%2Fplugin%3D{NAME}"


def template(world: World, roles: str, name: str = NAME, **pod: object) -> Object:
    """Pods of the loop driver. Where its socket is, and on which node it runs, it is told by moor alone."""
    return {"spec": {**pod_of(world, name, "$(CSI_ENDPOINT)", roles), **pod}}


def pod_of(world: World, name: str, endpoint: str, roles: str) -> Object:
    """What runs in a Pod of the loop driver, whoever makes it."""
    state = str(SHARED / FOLDER / name)
    container = {
        "name": "driver",
        "image": world.pods.image_with_tools(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["moor", "loop-driver"],
        "args": [
            f"--endpoint={endpoint}", "--node-id=$(NODE_NAME)", f"--roles={roles}", f"--driver-name={name}",
            f"--state-dir={state}", "--shared", "--record-calls",
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "state", "mountPath": state}, {"name": "run", "mountPath": "/run"}],
    }  # fmt: skip
    volumes = [
        {"name": "state", "hostPath": {"path": state, "type": "DirectoryOrCreate"}},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
    ]
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": volumes,
    }


def plugin(world: World, **spec: object) -> Object:
    """Its Plugin, with the controller on the first node."""
    fields: Object = {
        "controller": {"template": template(world, "controller", nodeSelector=on(world.first.name))},
        "node": {"mountDev": True, "template": template(world, "node")},
        **spec,
    }
    return objects.plugin(NAME, **fields)


def on(node: str) -> Object:
    return {"kubernetes.io/hostname": node}


@contextmanager
def running(world: World, **spec: object) -> Iterator[LoopDriver]:
    """Runs the driver, and takes its Plugin away in the end."""
    driver = LoopDriver(world.cluster, SHARED_SOURCE / FOLDER / NAME)
    world.create(plugin(world, **spec))
    try:
        yield driver
    finally:
        found = world.find("Plugin", NAME)
        # One that is deleted already may be gone any moment.
        if found and "deletionTimestamp" not in found["metadata"]:
            world.delete("Plugin", NAME)
    world.await_gone("Plugin", NAME)
    world.cluster.wait_for("the end of its workloads", lambda: not (workload(world, "deployments", CONTROLLER) or pods(world)), 60)
    forget_storage()


def forget_storage() -> None:
    """Removes what drivers have kept that are gone."""
    shutil.rmtree(SHARED_SOURCE / FOLDER, ignore_errors=True)


def pods(world: World, service: str = "") -> list[Object]:
    """Its Pods, of one of the services or of both."""
    selector = f"%2Cmoor.dev%2Fservice%3D{service}" if service else ""
    found: list[Object] = world.cluster.api.get(f"{_PODS}{selector}")["items"]
    return found


def instance(world: World, node: str) -> Object:
    """The PluginInstance of it on a node."""
    all_of_it = (item for item in world.every("PluginInstance") if item["spec"]["pluginName"] == NAME)
    (found,) = [item for item in all_of_it if item["spec"]["nodeName"] == node]
    return found


def workload(world: World, kind: str, name: str) -> Object | None:
    return world.found(f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}/{name}")


def await_deployed(world: World) -> Object:
    """Waits until all of it runs as it is declared."""

    def is_deployed(item: Object) -> bool:
        status = item.get("status", {})
        fresh = status.get("observedGeneration") == item["metadata"]["generation"]
        counted = all(status.get(f"{part}Healthy") == status.get(f"{part}Expected") for part in ("controllers", "nodes"))
        said = all(objects.condition(item, kind).get("status") == "True" for kind in ("Ready", "Deployed"))
        return fresh and counted and said

    return world.await_that("Plugin", NAME, "to be deployed", is_deployed, 90)


def patch(world: World, spec: Object) -> None:
    world.cluster.api.patch(objects.path("Plugin", "", NAME), {"spec": spec})


def expect_counts(item: Object, controllers: str, nodes: str) -> None:
    status = item["status"]
    found = (status["controllers"], status["nodes"])
    expect(found == (controllers, nodes), f"kubectl shows controllers {found[0]} and nodes {found[1]}")
