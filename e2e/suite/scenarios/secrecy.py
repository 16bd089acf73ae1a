"""Secrets and mount flags appear nowhere but where their owner wrote them."""

from __future__ import annotations

import base64
import json
import secrets
from contextlib import suppress
from pathlib import Path

from e2e.cluster.namespace import NAMESPACE
from e2e.cluster.node_config import SHARED_SOURCE

from .. import objects, pods
from ..objects import Object
from ..registry import scenario
from ..world import Failed, World, expect

_KINDS = "plugins,plugininstances,volumes,snapshots,volumeclaims,volumehandles,attachments"
_CALLS = ("controller", "controllerPublish", "nodeStage", "nodePublish")
_GROUP = "rbac.authorization.k8s.io"
ROLES = f"/apis/{_GROUP}/v1"


@scenario("secrets and mount flags are in no log, event, status or record", limit=150)
def secrecy(world: World) -> None:
    secret, flag, bad_flag, claim_flag = (f"{word}{secrets.token_hex(8)}" for word in ("pw", "x-a=", "bogus", "x-b="))
    grant_secrets(world)
    make_secret(world, secret)
    names = dict.fromkeys(_CALLS, "credentials")

    # One that works, and two whose failing calls may quote what they were given.
    world.volume("good", secrets=names, mountOptions={"mountFlags": [flag]})
    world.claim("good", world.first, volumeName="good", mountOptions={"mountFlags": [claim_flag]})
    world.await_ready("VolumeClaim", "good")
    world.volume("bad", secrets=names, mountOptions={"mountFlags": [bad_flag]})
    world.claim("bad", world.first, volumeName="bad")
    world.await_reason("VolumeClaim", "bad", "NodeStageFailed")
    world.driver.fail("NodePublishVolume", "Internal", "after", times=1)
    world.claim("repeated", world.first, volumeName="good", mountOptions={"mountFlags": [claim_flag]})
    world.await_ready("VolumeClaim", "repeated")
    expect(world.calls("NodeStageVolume"), "the driver was not called")
    # With the Secret of its Volume, and with one of its own.
    world.driver.fail("CreateSnapshot", "Internal", "after", times=1)
    world.snapshot("kept", volumeName="good")
    world.snapshot("kept-too", volumeName="good", secretName="credentials")
    world.await_ready("Snapshot", "kept", "kept-too")

    hidden = {"the secret": secret, "the volume's flag": flag, "the bad flag": bad_flag, "the claim's flag": claim_flag}
    found = [line for what, word in hidden.items() for line in _places(world, what, word)]
    world.remove("VolumeClaim", "good", "bad", "repeated")
    world.remove("Snapshot", "kept", "kept-too")
    found += [f"afterwards: {line}" for what, word in hidden.items() for line in _places(world, what, word)]
    if found:
        raise Failed("\n".join(["these were shown:", *sorted(set(found))]))


def grant_secrets(world: World) -> None:
    """As the chart's notes tell: per namespace."""
    account = {"kind": "ServiceAccount", "name": "moor-agent", "namespace": NAMESPACE}
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": "moor-agent-secrets"}
    binding = {"metadata": {"name": "moor-agent-secrets"}, "roleRef": role, "subjects": [account]}
    world.cluster.api.post(f"{ROLES}/namespaces/{world.namespace}/rolebindings", binding)


def make_secret(world: World, value: str) -> None:
    body = {"metadata": {"name": "credentials"}, "stringData": {"password": value}}
    world.cluster.api.post(f"/api/v1/namespaces/{world.namespace}/secrets", body)


def _places(world: World, what: str, word: str) -> list[str]:
    """Where a word is that should be nowhere."""
    encoded = base64.b64encode(word.encode()).decode().rstrip("=")
    texts = {
        **{f"the log of the {role}s": world.pods.logs(role) for role in pods.ROLES},
        "what an agent remembers of its calls": _traces(world),
        "an Event": world.cluster.kubectl("get", "events", "--all-namespaces", "-o", "json").stdout,
        **_object_texts(world, with_flags=what == "the secret"),
        **{f"the record of {node.name}": _content(node.directory / "moor") for node in world.cluster.nodes},
        "the driver's folder": _content(SHARED_SOURCE),
    }
    return [f"{what} in {place}" for place, text in texts.items() if word in text or encoded in text]


def _traces(world: World) -> str:
    """What the agents tell of their calls, as `kubectl moor trace` has them asked in their Pods."""
    words = ("-c", "agent", "--", "moor", "trace", "--output=json")
    names = [item["metadata"]["name"] for item in world.pods.objects(pods.AGENT)]
    told = [world.cluster.kubectl("exec", "-n", NAMESPACE, name, *words).stdout for name in names]
    expect(any("NodeStageVolume" in text for text in told), "no agent remembers a call")
    return "\n".join(told)


def _object_texts(world: World, *, with_flags: bool) -> dict[str, str]:
    """Every object of moor's: all of it, or without the specs, where mount flags have to be."""
    listed = world.cluster.kubectl("get", _KINDS, "--all-namespaces", "-o", "json").stdout
    items: list[Object] = json.loads(listed)["items"]
    texts = {}
    for item in items:
        shown = item if with_flags else {key: value for key, value in item.items() if key != "spec"}
        shown.get("metadata", {}).get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
        texts[f"{item['kind']} {item['metadata']['name']} ({objects.state(item)})"] = json.dumps(shown)
    return texts


def _content(folder: Path) -> str:
    """All that is written in the small files of a folder."""
    found = []
    for path in folder.rglob("*"):
        # A file that is written anew is renamed: under its own name it is seen the next time.
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_size < 10_000_000:
                found.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(found)
