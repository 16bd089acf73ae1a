"""Who may not write what: users, and agents beyond their own node (design R6). All attempts are dry runs."""

from __future__ import annotations

import json

from e2e.cluster import parts
from e2e.cluster.certificates import AUTHORITY
from e2e.cluster.commands import run
from e2e.cluster.install import NAMESPACE

from ..objects import Object
from ..pods import AGENT
from ..registry import scenario
from ..world import Failed, World, expect

_JANE = ("--as=jane", "--as-group=system:authenticated")
_DRY = "--dry-run=server"
_GRANT = {"attachment": "a", "attachmentUID": "u", "nodeName": "node-1", "nodeUID": "n"}


class Attempts:
    """Collects what should have been refused and was not, or with the wrong words."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.count = 0

    def refused(self, what: str, done: tuple[int, str], *words: str) -> None:
        self.count += 1
        code, said = done
        if code == 0:
            self.wrong.append(f"{what}: it was accepted")
        elif missing := [word for word in words if word not in said]:
            self.wrong.append(f"{what}: the refusal does not mention {missing}: {said.strip()}")

    def accepted(self, what: str, done: tuple[int, str]) -> None:
        self.count += 1
        code, said = done
        if code != 0:
            self.wrong.append(f"{what}: it was refused: {said.strip()}")

    def settle(self) -> None:
        if self.wrong:
            raise Failed("\n".join(self.wrong))


@scenario("users cannot forge grants, detach behind moor's back or free a claim")
def forged_by_users(world: World) -> None:
    _let_jane_edit(world)
    world.ready_volume()
    world.ready_claim("claim", world.first)
    attachment = str(world.attachment_of("claim")["metadata"]["name"])
    handle = str(world.every("VolumeHandle")[0]["metadata"]["name"])
    tries = Attempts()

    def jane(*arguments: str) -> tuple[int, str]:
        done = world.cluster.kubectl("-n", world.namespace, *_JANE, *arguments, _DRY, check=False)
        return done.returncode, done.stderr

    def admin(*arguments: str) -> tuple[int, str]:
        done = world.cluster.kubectl("-n", world.namespace, *arguments, _DRY, check=False)
        return done.returncode, done.stderr

    claim = ("patch", "volumeclaim", "claim", "--type=merge", "-p")
    grant = {**world.get("VolumeClaim", "claim")["spec"]["assignment"], "nodeName": "node-2"}
    tries.refused("moving a grant", jane(*claim, _json(spec={"assignment": grant})), "spec.assignment", "moor")
    tries.refused("taking a grant away", jane(*claim, _json(spec={"assignment": None})), "spec.assignment", "moor")
    free = _json(metadata={"finalizers": []})
    tries.refused("taking the finalizer off", jane(*claim, free), "moor.dev/detach", "forceDetach")
    tries.refused("taking it off as administrator", admin(*claim, free), "moor.dev/detach")
    status = _json(status={"state": "NodeDetached"})
    tries.refused("writing a status as user", jane(*claim, status, "--subresource=status"), "forbidden")
    tries.refused("writing a status as administrator", admin(*claim, status, "--subresource=status"), "written by moor")
    tries.accepted("labelling a claim", jane(*claim, _json(metadata={"labels": {"a": "b"}})))

    hint = ("only the moor controller writes Attachments", "delete the VolumeClaims", "moor:break-glass")
    tries.refused("deleting an Attachment", admin("delete", "attachment", attachment), *hint)
    change = ("--type=merge", "-p", _json(metadata={"labels": {"a": "b"}}))
    tries.refused("changing an Attachment", admin("patch", "attachment", attachment, *change), *hint)
    tries.refused("deleting a VolumeHandle", admin("delete", "volumehandle", handle), "delete the Volume")
    glass = ("--as=jane", "--as-group=moor:break-glass")
    tries.accepted("breaking the glass", admin("patch", "attachment", attachment, *change, *glass))
    tries.settle()
    world.note(f"{tries.count} attempts")


def _let_jane_edit(world: World) -> None:
    world.cluster.kubectl(
        "create", "rolebinding", "jane", "-n", world.namespace, "--clusterrole=moor-edit", "--user=jane"
    )  # fmt: skip


@scenario("an agent writes for its own node and for no other")
def forged_by_agents(world: World) -> None:
    world.ready_volume()
    world.ready_claim("claim", world.first)
    attachment = world.attachment_of("claim")
    stranger = _token(world, world.second.name)
    own = _token(world, world.first.name)
    unbound = world.cluster.kubectl("create", "token", "moor-agent", "-n", NAMESPACE).stdout.strip()
    tries = Attempts()

    status = ("--type=merge", "--subresource=status", "-p", _json(status={"attempts": 7}))
    claim = ("patch", "volumeclaim", "claim", *status)
    words = ("node-2", "assigned to node 'node-1'")
    tries.refused("a claim's status from the other node", _as(world, stranger, *claim), *words)
    tries.refused("a claim's status without a node", _as(world, unbound, *claim), "not bound to a Pod")
    tries.accepted("a claim's status from its own node", _as(world, own, *claim))
    grant = ("patch", "volumeclaim", "claim", "--type=merge", "-p", _json(spec={"assignment": _GRANT}))
    tries.refused("a grant from an agent", _as(world, own, *grant), "forbidden")

    of_node = ("patch", "attachment", attachment["metadata"]["name"], "--type=merge", "--subresource=status", "-p")
    detached = _json(status={"state": "NodeDetached"})
    tries.refused("NodeDetached from the other node", _as(world, stranger, *of_node, detached), "node-2")
    tries.refused("an Attachment's end from an agent", _as(world, own, "delete", *of_node[1:3]), "forbidden")
    _instances(world, tries, stranger)
    tries.settle()
    world.note(f"{tries.count} attempts")


def _instances(world: World, tries: Attempts, stranger: str) -> None:
    """What an agent reports about plugins is about its own node."""
    theirs = [item for item in world.every("PluginInstance") if item["spec"]["nodeName"] == world.first.name]
    expect(theirs, "node-1 has no PluginInstance")
    name = str(theirs[0]["metadata"]["name"])
    unhealthy = ("--type=merge", "--subresource=status", "-p", _json(status={"healthy": False}))
    tries.refused("another node's health", _as(world, stranger, "patch", "plugininstance", name, *unhealthy), "node-2")
    tries.refused("another node's instance", _as(world, stranger, "delete", "plugininstance", name), "node-2")


def _token(world: World, node: str) -> str:
    """A token like the one that kubelet gave the agent of a node: bound to its Pod."""
    pods = [item for item in world.pods.objects(AGENT) if item["spec"]["nodeName"] == node]
    bound = f"--bound-object-name={pods[0]['metadata']['name']}"
    done = world.cluster.kubectl("create", "token", "moor-agent", "-n", NAMESPACE, "--bound-object-kind=Pod", bound)
    return done.stdout.strip()


def _as(world: World, token: str, *arguments: str) -> tuple[int, str]:
    """kubectl with nothing but a token."""
    command = [
        str(parts.program("kubectl")), "--kubeconfig=/dev/null", f"--server=https://{world.cluster.network.api}:443",
        f"--certificate-authority={AUTHORITY}", f"--token={token}", "-n", world.namespace, *arguments, _DRY,
    ]  # fmt: skip
    done = run(command, check=False, timeout=30)
    return done.returncode, done.stderr


def _json(**content: Object) -> str:
    return json.dumps(content)
