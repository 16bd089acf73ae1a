"""The kinds of Pods that are compared: what volume they have, and who serves it."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.suite.mount_driver import NAME as SERVED
from e2e.suite.objects import PLUGIN, Object

# The same driver once more, which kubelet is told of by the driver itself, without moor.
DIRECT = f"direct.{SERVED}"
NAMESPACE = "bench"


@dataclass(frozen=True)
class Kind:
    """One row of the table."""

    name: str
    title: str
    # A driver whose PersistentVolumes are written by hand.
    driver: str = ""
    # A StorageClass whose volumes moor makes.
    storage_class: str = ""
    # Whether another Pod has used the volume before.
    used: bool = False

    @property
    def late(self) -> bool:
        """Whether the claim is bound only when its first Pod is there."""
        return self.storage_class == LATE

    def claim(self, name: str) -> Object:
        spec: Object = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.storage_class,
            "resources": {"requests": {"storage": "64Mi"}},
        }
        if self.driver:
            spec["volumeName"] = f"{NAMESPACE}-{name}"
        return {"metadata": {"name": name}, "spec": spec}

    def volume(self, name: str) -> Object:
        """The PersistentVolume of a claim, for drivers that make none."""
        spec: Object = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "64Mi"},
            "storageClassName": "",
            "claimRef": {"namespace": NAMESPACE, "name": name},
            "csi": {"driver": self.driver, "volumeHandle": name},
        }
        return {"metadata": {"name": f"{NAMESPACE}-{name}"}, "spec": spec}


NOW, LATE = "bench-now", "bench-late"

KINDS = (
    Kind("none", "without a volume"),
    Kind("floor", "Bound PVC, driver at kubelet without moor", driver=DIRECT),
    Kind("mount", "Bound PVC, used before, the same driver by moor", driver=SERVED, used=True),
    Kind("first", "the same, first Pod of a static PV", driver=SERVED),
    Kind("loop", "Bound PVC, loop driver (attach, first mkfs)", storage_class=NOW),
    Kind("late", "first Pod of a late-binding PVC, loop driver", storage_class=LATE),
)


def storage_classes() -> list[Object]:
    return [
        {"metadata": {"name": NOW}, "provisioner": PLUGIN, "volumeBindingMode": "Immediate"},
        {"metadata": {"name": LATE}, "provisioner": PLUGIN, "volumeBindingMode": "WaitForFirstConsumer"},
    ]
