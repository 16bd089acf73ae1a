"""Objects that no schema of ours would let in, as an older version or a restored backup could leave them.

They are written into etcd, past all validation. Nobody may stall over one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

from e2e.cluster import Problem
from e2e.cluster.network import CONTROL, inside

from .. import objects
from ..objects import FINALIZER, PLUGIN, Object
from ..pods import AGENT, CONTROLLER
from ..registry import scenario
from ..world import World, expect

# How soon others are served, whatever lies around.
SECONDS = 15

# Speaks to etcd's gateway, which listens in the control plane's network namespace only.
_PUT = """
import base64, json, sys, urllib.request
key, value, verb = sys.argv[1], sys.stdin.read(), sys.argv[2]
encode = lambda text: base64.b64encode(text.encode()).decode()
body = {"key": encode(key)} if verb == "deleterange" else {"key": encode(key), "value": encode(value)}
request = urllib.request.Request("http://127.0.0.1:2379/v3/kv/" + verb, json.dumps(body).encode())
print(urllib.request.urlopen(request, timeout=10).read().decode())
"""


@scenario("malformed objects stall nobody, also not after a restart", limit=180)
def malformed(world: World) -> None:
    world.ready_volume()
    world.ready_volume("second")
    keys = _write_all(world)
    try:
        world.ready_claim("beside", world.first)
        world.remove("VolumeClaim", "beside", timeout=SECONDS)
        # They are in everybody's first list now.
        world.pods.delete(lambda item: _is_of(item, CONTROLLER) or _is_of(item, AGENT))
        world.volume("after-restart")
        world.await_ready("Volume", "after-restart", timeout=SECONDS * 2)
        for node in world.cluster.nodes:
            world.claim(f"on-{node.name}", node, volumeName="second" if node is world.first else "after-restart")
        for node in world.cluster.nodes:
            world.await_ready("VolumeClaim", f"on-{node.name}", timeout=SECONDS)
            world.remove("VolumeClaim", f"on-{node.name}", timeout=SECONDS)
    finally:
        for key in keys:
            _etcd("deleterange", key)
        world.cluster.wait_for("the malformed objects to go", lambda: not _left(world), 10)


def _is_of(item: Object, role: str) -> bool:
    return bool(item["metadata"]["labels"].get("app.kubernetes.io/component") == role)


def _write_all(world: World) -> list[str]:
    """A claim, a Volume, an Attachment, a VolumeHandle, a Plugin: each with fields of the wrong kind."""
    node = world.first
    uid = world.cluster.api.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"]
    grant = {"attachment": "bad", "attachmentUID": "bad", "nodeName": node.name, "nodeUID": uid}
    modes = {"accessMode": "Everybody", "attachmentMode": 7, "readOnly": "no"}
    claim = {"volumeName": "data", **modes, "assignment": grant}
    volume = {"pluginName": PLUGIN, "capacity": {"of": "what"}, "capabilities": "all", "mountOptions": [1]}
    fixed = {"handleName": 1, "epoch": "first", "mountOptions": "none"}
    controller = {"instance": "bad", "agent": node.name}
    attachment = {"nodeName": node.name, "volumeHandle": "bad", "fixed": fixed, "controller": controller}
    handle = {"driverName": PLUGIN, "volumeHandle": "bad", "mode": 9, "epoch": "x", "volume": "data"}
    written = [
        _bad("VolumeClaim", world.namespace, "bad-claim", claim, {"state": "Nowhere", "attempts": "many"}),
        _bad("VolumeClaim", world.namespace, "bad-empty", None, None),
        _bad("Volume", world.namespace, "bad-volume", volume, {"state": 3, "conditions": "none"}),
        _bad("Attachment", "", "bad-attachment", attachment, {"state": "Sideways", "publishContext": [1]}),
        _bad("VolumeHandle", "", "bad-handle", handle, None),
        _bad("Plugin", "", "bad-plugin", {"controllerConcurrency": "lots", "roles": 1}, {"nodesHealthy": "all"}),
    ]
    keys = []
    for item in written:
        key = objects.path(item["kind"], "", "").removeprefix(f"/apis/{objects.GROUP_VERSION}/").rstrip("/")
        home = item["metadata"].get("namespace", "")
        keys.append("/".join(part for part in ("/registry/moor.dev", key, home, item["metadata"]["name"]) if part))
        _etcd("put", keys[-1], json.dumps(item))
    seen = world.cluster.wait_for("the API server to show them", lambda: len(_left(world)) == len(written), 10)
    expect(seen, "the API server does not show them")
    return keys


def _bad(kind: str, namespace: str, name: str, spec: object, status: object) -> Object:
    meta: Object = {"name": name, "uid": str(uuid.uuid4()), "generation": 1, "finalizers": [FINALIZER]}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if namespace:
        meta["namespace"] = namespace
    item: Object = {"apiVersion": objects.GROUP_VERSION, "kind": kind, "metadata": meta}
    if spec is not None:
        item["spec"] = spec
    if status is not None:
        item["status"] = status
    return item


def _left(world: World) -> list[str]:
    kinds = ("VolumeClaim", "Volume", "Attachment", "VolumeHandle", "Plugin")
    names = [str(item["metadata"]["name"]) for kind in kinds for item in world.every(kind)]
    return [name for name in names if name.startswith("bad-")]


def _etcd(verb: str, key: str, value: str = "") -> None:
    command = [*inside(CONTROL), sys.executable, "-c", _PUT, key, verb]
    words = [str(word) for word in command]
    done = subprocess.run(words, input=value, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise Problem(f"etcd does not take {key}: {done.stderr.strip()}")
