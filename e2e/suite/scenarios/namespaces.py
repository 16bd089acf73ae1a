"""Deleting a namespace, with everything in it at once and in no order."""

from __future__ import annotations

from ..registry import scenario
from ..world import World
from .secrecy import grant_secrets, make_secret

_SECRETS = dict.fromkeys(("controller", "controllerPublish", "nodeStage", "nodePublish"), "credentials")


@scenario("deleting a namespace detaches and deletes what is in it, also when Secrets and roles go first")
def namespace_deleted(world: World) -> None:
    grant_secrets(world)
    make_secret(world, "of no interest")
    for name in ("plain", "guarded"):
        world.volume(name, secrets=_SECRETS if name == "guarded" else None)
        world.claim(name, world.first, volumeName=name)
    world.await_ready("VolumeClaim", "plain", "guarded")
    where = f"/api/v1/namespaces/{world.namespace}"
    world.cluster.api.delete(where)
    for kind, names in (("VolumeClaim", ("guarded", "plain")), ("Volume", ("guarded", "plain"))):
        for name in names:
            world.await_gone(kind, name, 30)
