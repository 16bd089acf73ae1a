"""moor's objects as the suite writes and reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GROUP_VERSION = "moor.dev/v1alpha1"
PLUGIN = "loop.moor.dev"
FINALIZER = "moor.dev/detach"

Object = dict[str, Any]
# Says whether an object is as somebody waits for it to be.
Holds = Callable[[Object], object]

_PLURALS = {
    "Plugin": "plugins",
    "PluginInstance": "plugininstances",
    "Volume": "volumes",
    "VolumeClaim": "volumeclaims",
    "Snapshot": "snapshots",
    "VolumeHandle": "volumehandles",
    "Attachment": "attachments",
}
_NAMESPACED = {"Volume", "VolumeClaim", "Snapshot"}


def collection(kind: str, namespace: str = "") -> str:
    """The path of all objects of a kind, or of those in a namespace."""
    scope = f"/namespaces/{namespace}" if namespace and kind in _NAMESPACED else ""
    return f"/apis/{GROUP_VERSION}{scope}/{_PLURALS[kind]}"


def path(kind: str, namespace: str, name: str) -> str:
    return f"{collection(kind, namespace)}/{name}"


def home(item: Object) -> str:
    """The path that an object is created at."""
    return collection(str(item["kind"]), str(item["metadata"].get("namespace", "")))


def plugin(name: str = PLUGIN, **spec: object) -> Object:
    return {"apiVersion": GROUP_VERSION, "kind": "Plugin", "metadata": {"name": name}, "spec": spec}


def use(mode: str = "SingleNodeWriter", *, block: bool = False) -> Object:
    """A use that a Volume lists."""
    return {"accessMode": mode, "attachmentMode": "BlockDevice" if block else "FileSystem"}


def volume(namespace: str, name: str, **spec: object) -> Object:
    """A Volume of the loop driver, to be created. A field that is None is left out."""
    fields = {"pluginName": PLUGIN, "capacity": "64Mi", **spec}
    return _object("Volume", namespace, name, fields)


def snapshot(namespace: str, name: str, **spec: object) -> Object:
    return _object("Snapshot", namespace, name, spec)


def claim(namespace: str, name: str, **spec: object) -> Object:
    return _object("VolumeClaim", namespace, name, {"volumeName": "data", **spec})


def _object(kind: str, namespace: str, name: str, fields: Object) -> Object:
    spec = {key: value for key, value in fields.items() if value is not None}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def state(item: Object) -> str:
    return str(item.get("status", {}).get("state", ""))


def condition(item: Object, kind: str = "Ready") -> Object:
    """One condition, or an empty one."""
    for entry in item.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return dict(entry)
    return {}


def is_ready(item: Object) -> bool:
    return condition(item).get("status") == "True"


def told(item: Object) -> str:
    """Where it is, in one line, for a message."""
    meta, found = item["metadata"], condition(item)
    going = " (being deleted)" if "deletionTimestamp" in meta else ""
    why = f", {found['reason']}: {found['message']}" if found else ", no Ready condition"
    return f"{item.get('kind', 'object')} {meta['name']}{going} is {state(item) or 'without state'}{why}"
