"""Who may not write what: users, and agents beyond their own node (rule R6). All attempts are dry runs."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request

from e2e.cluster.certificates import AUTHORITY
from e2e.cluster.install import NAMESPACE

from .. import objects
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
    tries.refused("moving a grant", jane(*claim, _json(spec={"assignment": grant})), "spec.assignment")
    tries.refused("taking a grant away", jane(*claim, _json(spec={"assignment": None})), "spec.assignment")
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
    attachment = str(world.attachment_of("claim")["metadata"]["name"])
    stranger, own = Agent(world, world.second.name), Agent(world, world.first.name)
    unbound = Agent(world, None)
    tries = Attempts()

    claim = objects.path("VolumeClaim", world.namespace, "claim")
    tried: Object = {"status": {"attempts": 7}}
    words = ("node-2", "assigned to node 'node-1'")
    tries.refused("a claim's status from the other node", stranger.patch(f"{claim}/status", tried), *words)
    tries.refused("a claim's status without a node", unbound.patch(f"{claim}/status", tried), "not bound to a Pod")
    tries.accepted("a claim's status from its own node", own.patch(f"{claim}/status", tried))
    tries.refused("a grant from an agent", own.patch(claim, {"spec": {"assignment": _GRANT}}), "forbidden")

    lock = objects.path("Attachment", "", attachment)
    detached: Object = {"status": {"state": "NodeDetached"}}
    tries.refused("NodeDetached from the other node", stranger.patch(f"{lock}/status", detached), "node-2")
    tries.refused("an Attachment's end from an agent", own.request("DELETE", lock), "forbidden")

    # What an agent reports about plugins is about its own node.
    theirs = [item for item in world.every("PluginInstance") if item["spec"]["nodeName"] == world.first.name]
    expect(theirs, "node-1 has no PluginInstance")
    instance = objects.path("PluginInstance", "", str(theirs[0]["metadata"]["name"]))
    sick: Object = {"status": {"healthy": False}}
    tries.refused("another node's health", stranger.patch(f"{instance}/status", sick), "node-2")
    tries.refused("another node's instance", stranger.request("DELETE", instance), "node-2")
    tries.accepted("its own health", own.patch(f"{instance}/status", sick))
    tries.settle()
    world.note(f"{tries.count} attempts")


class Agent:
    """Requests with nothing but a token of the agents' account, dry."""

    def __init__(self, world: World, node: str | None) -> None:
        """Like the token that kubelet gave the agent of a node, bound to its Pod; or bound to nothing."""
        bound = []
        if node is not None:
            pods = [item for item in world.pods.objects(AGENT) if item["spec"]["nodeName"] == node]
            bound = ["--bound-object-kind=Pod", f"--bound-object-name={pods[0]['metadata']['name']}"]
        self._token = world.cluster.kubectl("create", "token", "moor-agent", "-n", NAMESPACE, *bound).stdout.strip()
        self._server = f"https://{world.cluster.network.api}:443"

    def patch(self, path: str, body: Object) -> tuple[int, str]:
        return self.request("PATCH", path, body)

    def request(self, method: str, path: str, body: Object | None = None) -> tuple[int, str]:
        """0 if it was accepted, else the HTTP code; and what the API server said."""
        asked = urllib.request.Request(f"{self._server}{path}?dryRun=All", method=method)
        asked.add_header("Authorization", f"Bearer {self._token}")
        asked.add_header("Content-Type", "application/merge-patch+json")
        asked.data = None if body is None else json.dumps(body).encode()
        trust = ssl.create_default_context(cafile=str(AUTHORITY))
        try:
            with urllib.request.urlopen(asked, timeout=20, context=trust) as answer:
                return 0, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def _json(**content: Object) -> str:
    return json.dumps(content)
