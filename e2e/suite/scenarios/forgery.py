"""Who may not write what: users, and agents beyond their own node (rule R6). What the API server refuses is a dry run."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request

from e2e.cluster.certificates import AUTHORITY
from e2e.cluster.namespace import NAMESPACE

from .. import objects
from ..objects import Object
from ..pods import AGENT
from ..registry import scenario
from ..workloads import Workloads
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
    there = world.attachment_of("claim")
    ended: Object = {**there, "metadata": {**there["metadata"], "finalizers": []}}
    for who in (stranger, own):
        tries.refused("an Attachment's end while it is open", who.request("PUT", lock, ended), "only the moor controller")

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


@scenario("an agent's token opens no volume but those that Pods of its node use", limit=150)
def forged_for_pods(world: World) -> None:
    work, beyond = Workloads(world), World(world.cluster, "default")
    work.claim("own")
    work.claim("other")
    elsewhere = Workloads(beyond)
    elsewhere.claim("own")
    try:
        work.running_pod("pod", "own", world.first)
        uid = work.uid("pod")
        forged = Forged(world, uid, work.await_bound("own"))
        tries = Attempts()
        _before_the_door(world, forged, work.claims_of(uid)[0], tries)
        tries.settle()
        other, theirs = work.await_bound("other"), elsewhere.await_bound("own")
        name = f"{world.namespace}/pod"
        unused = f"does not use PersistentVolumeClaim {world.namespace}/other"
        forged.refused("a volume that its Pod does not use", forged.of(other), f"Pod {name}", unused)
        of_other = forged.of(forged.own, volumeName=other["metadata"]["name"])
        forged.refused("another volume by its Pod's PersistentVolume", of_other, "stands for another volume")
        unused = "does not use PersistentVolumeClaim default/own"
        forged.refused("a volume of another namespace", forged.of(theirs), unused)
        at_second = forged.of(forged.own, nodeName=world.second.name)
        forged.refused("a Pod of another node", at_second, f"is not on node {world.second.name}", node=world.second.name)
        world.note(f"{tries.count + forged.count} attempts")
        work.remove_pods("pod")
    finally:
        elsewhere.remove_all()


def _before_the_door(world: World, forged: Forged, live: str, tries: Attempts) -> None:
    """What the API server refuses by itself. `live` is the claim of the Pod."""
    own, stranger = forged.agent(world.first.name), forged.agent(world.second.name)
    claims = objects.collection("VolumeClaim", NAMESPACE)
    right = forged.of(forged.own)

    def make(what: str, item: Object, *words: str, by: Agent = own, where: str = claims) -> None:
        tries.refused(what, by.request("POST", where, item), *words)

    tries.accepted("a right claim", own.request("POST", claims, right))
    make("a claim of another node's Pod", right, "on its own node", by=stranger)
    make("a claim of no Pod", forged.of(forged.own, pod=None), "no claim of a Pod")
    make("a claim of no node", forged.of(forged.own, nodeName=None), "nodeName")
    make("a claim by force", forged.of(forged.own, forceDetach=True), "forceDetach")
    there, meta = "default", {**right["metadata"], "namespace": "default"}
    elsewhere = objects.collection("VolumeClaim", there)
    make("a claim neither in moor's namespace nor in the Pod's", {**right, "metadata": meta}, "in the Pod's own", where=elsewhere)
    for what, meta, word in (
        ("another name", {"name": "pod-of-mine-1"}, "pod-<UID of the Pod>"),
        ("a foreign finalizer", {"finalizers": [objects.FINALIZER, "example.com/stay"]}, "no other"),
        ("no finalizer", {"finalizers": []}, "no other"),
    ):
        make(what, {**right, "metadata": {**right["metadata"], **meta}}, word)
    path = objects.path("VolumeClaim", NAMESPACE, live)
    tries.refused("the end of another node's claim", stranger.request("DELETE", path), "on its own node")
    tries.refused("another mode", own.patch(path, {"spec": {"accessMode": "MultiNodeMultiWriter"}}), "cannot patch")
    tries.refused("another Pod", own.patch(path, {"spec": {"pod": {"uid": "another"}}}), "cannot patch")


class Forged:
    """Claims in the name of a Pod on the first node, made with agents' tokens."""

    def __init__(self, world: World, uid: str, own: Object) -> None:
        self.own = own
        self.count = 0
        self._world = world
        self._uid = uid
        self._agents = {node.name: Agent(world, node.name) for node in world.cluster.nodes}

    def agent(self, node: str) -> Agent:
        return self._agents[node]

    def of(self, volume: Object, **changes: object) -> Object:
        """The claim of the Pod for a PersistentVolume that moor has made, which has the name of its Volume; with changes. A
        field that is None is left out."""
        name = volume["metadata"]["name"]
        pod = {"namespace": self._world.namespace, "name": "pod", "uid": self._uid, "persistentVolume": name}
        spec = {"volumeName": name, "nodeName": self._world.first.name, "pod": pod, **changes}
        item = objects.claim(NAMESPACE, f"pod-{self._uid}-0123456789abcdef", **spec)
        item["metadata"]["finalizers"] = [objects.FINALIZER]
        return item

    def refused(self, what: str, item: Object, *words: str, node: str | None = None) -> None:
        """Makes it, and waits until the controller refuses it."""
        self.count += 1
        agent = self.agent(node or self._world.first.name)
        done, said = agent.request("POST", objects.collection("VolumeClaim", NAMESPACE), item, dry=False)
        expect(done == 0, f"{what}: the API server has refused it, which shows nothing: {said}")
        kept = World(self._world.cluster, NAMESPACE)
        name = str(item["metadata"]["name"])
        found = kept.await_reason("VolumeClaim", name, "PodNotEntitled", *words)
        expect("assignment" not in found["spec"], f"{what}: it was granted")
        # Its node's agent may be faster.
        if kept.find("VolumeClaim", name) is not None:
            kept.cluster.kubectl("delete", "volumeclaim", name, "-n", NAMESPACE, "--ignore-not-found")
        kept.cluster.wait_for(f"VolumeClaim {name} to go", lambda: kept.find("VolumeClaim", name) is None, 30)


class Agent:
    """Requests with nothing but a token of the agents' account, dry where nothing else is said."""

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

    def request(self, method: str, path: str, body: Object | None = None, *, dry: bool = True) -> tuple[int, str]:
        """0 if it was accepted, else the HTTP code; and what the API server said."""
        asked = urllib.request.Request(f"{self._server}{path}{'?dryRun=All' if dry else ''}", method=method)
        asked.add_header("Authorization", f"Bearer {self._token}")
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        asked.add_header("Content-Type", kind)
        asked.data = None if body is None else json.dumps(body).encode()
        trust = ssl.create_default_context(cafile=str(AUTHORITY))
        try:
            with urllib.request.urlopen(asked, timeout=20, context=trust) as answer:
                return 0, answer.read().decode()
        except urllib.error.HTTPError as error:
            # As a person reads it: in JSON, < and > are written otherwise.
            return error.code, str(json.load(error).get("message"))


def _json(**content: Object) -> str:
    return json.dumps(content)
