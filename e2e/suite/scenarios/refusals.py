"""Contradictory, missing, negative and changed fields: refused by the API server with the field and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from e2e.cluster import ApiError

from .. import objects
from ..objects import Object, use
from ..registry import scenario
from ..world import Failed, World

NS = "refusals"
BLOCK_ONLY = [use(block=True)]
TOPOLOGY = {"required": [{"segments": {"zone": "a"}}]}
GRANT = {"attachment": "a", "attachmentUID": "u", "nodeName": "node-1", "nodeUID": "n"}


@dataclass(frozen=True)
class Refused:
    """An object that must not be created, and words of the refusal."""

    item: Object
    words: tuple[str, ...]


@dataclass(frozen=True)
class Fixed:
    """A change that must not be made, and words of the refusal."""

    kind: str
    change: Object
    words: tuple[str, ...]


def _volume(**spec: object) -> Object:
    return objects.volume(NS, "new", **spec)


def _claim(**spec: object) -> Object:
    return objects.claim(NS, "new", **spec)


REFUSED = (
    Refused(_volume(capacity=None), ("spec", "set exactly one of spec.capacity", "spec.volumeHandle")),
    Refused(_volume(volumeHandle="h"), ("spec", "set exactly one of spec.capacity", "spec.volumeHandle")),
    Refused(_volume(capacity="-1Gi"), ("spec.capacity", "must be a positive size", "1Gi")),
    Refused(_volume(capacity=-5), ("spec.capacity", "must be a positive size")),
    Refused(_volume(capacity="0"), ("spec.capacity", "must be a positive size")),
    Refused(_volume(capacity="lots"), ("spec.capacity", "must be a positive size")),
    Refused(_volume(capacity="100m"), ("spec.capacity", "at least one byte")),
    Refused(_volume(capacity="2Gi", capacityLimit="1Gi"), ("spec.capacityLimit", "must not be below spec.capacity")),
    Refused(_volume(capacity=None, volumeHandle="h", parameters={"a": "b"}), ("spec.parameters", "remove them")),
    Refused(_volume(capacity=None, volumeHandle="h", topology=TOPOLOGY), ("spec.topology", "remove them")),
    Refused(_volume(volumeContext={"a": "b"}), ("spec.volumeContext", "registering an existing volume")),
    Refused(
        _volume(capabilities=BLOCK_ONLY, mountOptions={"fsType": "ext4"}),
        ("spec.mountOptions", "FileSystem", "remove mountOptions"),
    ),
    Refused(_volume(capabilities=[]), ("spec.capabilities", "at least 1")),
    Refused(_volume(capabilities=[use("Everybody")]), ("spec.capabilities[0].accessMode", "SingleNodeWriter")),
    Refused(_volume(pluginName=None), ("spec.pluginName", "Required value")),
    Refused(_volume(pluginName=""), ("spec.pluginName", "at least 1 chars")),
    Refused(_volume(secrets={"nodeStage": "s?a=b"}), ("spec.secrets.nodeStage", "name of a Secret", "lower case")),
    Refused(_volume(deletionPolicy="Burn"), ("spec.deletionPolicy", "Delete", "Retain")),
    Refused(_volume(assignment={"operation": "Create"}), ("spec.assignment", "moor controller")),
    Refused(_volume(capacty="1Gi"), ('unknown field "spec.capacty"',)),
    Refused(_claim(volumeName=None), ("spec.volumeName", "Required value")),
    Refused(_claim(nodeName=""), ("spec.nodeName", "at least 1 chars")),
    Refused(
        _claim(attachmentMode="BlockDevice", mountOptions={"mountFlags": ["noatime"]}),
        ("spec.mountOptions", "BlockDevice", "remove mountOptions"),
    ),
    Refused(_claim(accessMode="MultiNodeReader"), ("spec.readOnly", "set spec.readOnly to true")),
    Refused(_claim(accessMode="Everybody"), ("spec.accessMode", "SingleNodeWriter", "MultiNodeReader")),
    Refused(_claim(readOnly="perhaps"), ("spec.readOnly", "boolean")),
    Refused(_claim(assignment=GRANT), ("spec.assignment", "moor controller")),
    Refused(objects.plugin("new", healthTimeoutSeconds=0), ("spec.healthTimeoutSeconds", "greater than or equal to 1")),
    Refused(objects.plugin("new", controllerConcurrency=-1), ("spec.controllerConcurrency", "greater than or equal")),
    Refused(objects.plugin("new", balancing="Sideways"), ("spec.balancing", "Spread")),
    Refused(objects.plugin("new", allow={"register": {"namespaces": ["Team"]}}), ("spec.allow.register.namespaces",)),
    Refused(objects.plugin("new", allow={"create": {"matchLabels": {}}}), ("spec.allow.create.matchLabels", "at least 1")),
    Refused(objects.plugin("new", driverName="d" * 64), ("spec.driverName", "63")),
)

FIXED = (
    Fixed("VolumeClaim", {"volumeName": "other"}, ("spec.volumeName is immutable", "delete this claim")),
    Fixed("VolumeClaim", {"nodeName": "node-2"}, ("spec.nodeName is immutable", "create one for the other node")),
    Fixed("VolumeClaim", {"nodeName": None}, ("spec.nodeName is immutable",)),
    Fixed("VolumeClaim", {"readOnly": True}, ("spec.readOnly", "immutable", "create another")),
    Fixed("VolumeClaim", {"accessMode": "MultiNodeMultiWriter"}, ("spec.accessMode", "immutable")),
    Fixed("VolumeClaim", {"attachmentMode": "BlockDevice"}, ("spec.attachmentMode", "immutable")),
    Fixed("VolumeClaim", {"mountOptions": {"mountFlags": ["a"]}}, ("spec.mountOptions is immutable",)),
    Fixed("Volume", {"pluginName": "other"}, ("spec.pluginName is immutable", "create another Volume")),
    Fixed("Volume", {"capacity": "1Mi"}, ("spec.capacity cannot be below status.capacityBytes",)),
    Fixed("Volume", {"capacity": None}, ("spec.capacity cannot be taken away",)),
    Fixed("Volume", {"capacityLimit": "9Gi"}, ("spec.capacityLimit", "immutable")),
    Fixed("Volume", {"parameters": {"a": "b"}}, ("spec.parameters is immutable",)),
    Fixed("Volume", {"mountOptions": {"fsType": "xfs"}}, ("spec.mountOptions.fsType is immutable",)),
    Fixed("Volume", {"topology": TOPOLOGY}, ("spec.topology is immutable",)),
    Fixed("Plugin", {"driverName": "other"}, ("spec.driverName is immutable", "create another Plugin")),
)


@scenario("what cannot work is refused with the field and the remedy", namespace=NS)
def refusals(world: World) -> None:
    wrong = [f"{_told(case.item)}: {found}" for case in REFUSED if (found := _creation(world, case))]
    world.ready_volume()
    world.claim("claim", world.first)
    names = {"VolumeClaim": "claim", "Volume": "data", "Plugin": objects.PLUGIN}
    for change in FIXED:
        found = _change(world, change, names[change.kind])
        if found:
            wrong.append(f"{change.kind} {change.change}: {found}")
    world.note(f"{len(REFUSED)} objects and {len(FIXED)} changes")
    if wrong:
        raise Failed("\n".join([f"{len(wrong)} were not refused as they should:", *wrong]))


def _creation(world: World, case: Refused) -> str:
    where = objects.home(case.item) + "?dryRun=All&fieldValidation=Strict"
    return _missing(lambda: world.cluster.api.post(where, case.item), case.words)


def _change(world: World, case: Fixed, name: str) -> str:
    where = objects.path(case.kind, world.namespace, name) + "?dryRun=All&fieldValidation=Strict"
    return _missing(lambda: world.cluster.api.patch(where, {"spec": case.change}), case.words)


def _missing(attempt: Callable[[], object], words: tuple[str, ...]) -> str:
    """What is wrong with the refusal; nothing, if it is as it should be."""
    try:
        attempt()
    except ApiError as error:
        absent = [word for word in words if word not in error.message]
        return f"the refusal does not mention {absent}: {error.message}" if absent else ""
    return "it was accepted"


def _told(item: Object) -> str:
    return f"{item['kind']} {item['spec']}"
