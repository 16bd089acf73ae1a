"""Deleting a namespace, with everything in it at once and in no order."""

from __future__ import annotations

from ..registry import scenario
from ..world import World
from .secrecy import ROLES, grant_secrets, make_secret

_SECRETS = dict.fromkeys(("controller", "controllerPublish", "nodeStage", "nodePublish"), "credentials")


@scenario("deleting a namespace detaches and deletes what is in it, also when Secrets and roles go first")
def namespace_deleted(world: World) -> None:
    grant_secrets(world)
    make_secret(world, "of no interest")
    for name in ("plain", "guarded"):
        world.volume(name, secrets=_SECRETS if name == "guarded" else None)
        world.claim(name, world.first, volumeName=name)
    world.await_ready("VolumeClaim", "plain", "guarded")
    # The order in which a namespace is emptied is anybody's guess: the worst one, for certain.
    world.cluster.api.delete(f"{ROLES}/namespaces/{world.namespace}/rolebindings/moor-agent-secrets")
    world.cluster.api.delete(f"/api/v1/namespaces/{world.namespace}")
    for kind, names in (("VolumeClaim", ("guarded", "plain")), ("Volume", ("guarded", "plain"))):
        for name in names:
            world.await_gone(kind, name, 30)
