"""A few of Kubernetes' own storage tests, those that say most in two minutes. `make e2e-storage` runs them all."""

from __future__ import annotations

import re

from e2e.cluster import parts
from e2e.cluster.paths import KUBECONFIG, REPOSITORY
from e2e.storage import drivers, specs

from .. import snapshot_controller
from ..registry import scenario
from ..world import World, expect

_SHARED, _LOCAL = (f"[Driver: {name}] [Testpattern: " for name in (drivers.SHARED, drivers.LOCAL))
# How a name begins, for each spec that is to run.
_CHOSEN = (
    # Until kubelet has given up, which takes two minutes. Without it the others would take less.
    _SHARED + "Dynamic PV (block volmode)] volumeMode should fail to use a volume in a pod with mismatched mode",
    _SHARED + "Dynamic PV (default fs)] provisioning should provision storage with mount options",
    _SHARED + "Dynamic PV (default fs)] provisioning should mount multiple PV pointing to the same storage on the same",
    _SHARED + "Dynamic PV (block volmode)] multiVolume [Slow] should access to two volumes with the same volume mode and"
    " retain data across pod recreation on different node",
    _SHARED + "Dynamic PV (default fs)(allowExpansion)] volume-expand Verify if offline PVC expansion works",
    _LOCAL + "Dynamic PV (default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited while pod is",
    _LOCAL + "Dynamic PV (delayed binding)] topology should provision a volume and schedule a pod with AllowedTopologies",
    _LOCAL + "Dynamic PV (default fs)] fsgroupchangepolicy (Always)[LinuxOnly], pod created with an initial fsgroup, new",
    _LOCAL + "Dynamic PV (default fs)] subPath should support existing single file",
    _LOCAL + "Dynamic PV (block volmode)] volumes should store data",
    _LOCAL + "Dynamic Snapshot (retain policy)] snapshottable [Feature:VolumeSnapshotDataSource] volume snapshot controller  should"
    " check snapshot fields, check restore correctly works after modifying source data, check deletion (persistent)",
    _LOCAL + "Pre-provisioned Snapshot (delete policy)] snapshottable [Feature:VolumeSnapshotDataSource] volume snapshot"
    " controller  should check snapshot fields, check restore correctly works after modifying source data, check deletion",
    _SHARED + "Dynamic PV (default fs)] provisioning should provision correct filesystem size when restoring snapshot to larger",
    _LOCAL + "Generic Ephemeral-volume (default fs) (late-binding)] ephemeral should support two pods which have the same",
)
# They mostly wait.
_SIDE_BY_SIDE = 6
_OUTPUT = REPOSITORY / "target" / "storage-tests.log"


@scenario(
    "a selection of Kubernetes' own storage tests passes, on a shared and on a node-local driver",
    namespace="default",
    # Of two PersistentVolumes of one storage the suite writes the second with a larger size than the storage has, for which
    # kubelet then calls NodeExpandVolume.
    tolerated=("OutOfRange",),
    programs=(*specs.PROGRAMS_HERE, snapshot_controller.PROGRAM),
    limit=480,
)
def storage_tests(world: World) -> None:
    # Of a container without a name the report has a space more than what the focus is compared with.
    focus = "|".join(re.escape(re.sub(" +", " ", name)) for name in _CHOSEN)
    with snapshot_controller.running(world.cluster, parts.snapshot_kinds()), drivers.local(world.cluster):
        before = drivers.leftovers(world.cluster)
        told = specs.run(
            specs.OURS,
            KUBECONFIG,
            world.cluster,
            focus=focus,
            side_by_side=_SIDE_BY_SIDE,
            at_most="5m",
            output=_OUTPUT,
        )
        expect(told.good, "\n".join([*told.lines(), f"what they said is in {_OUTPUT}:", _OUTPUT.read_text()]))
        missing = [name for name in _CHOSEN if not any(passed.startswith(name) for passed in told.passed)]
        expect(not missing, f"no such tests were run: {missing}; skipped: {dict(told.skipped)}")
        left = "all that the tests made on either driver to be gone"
        world.cluster.wait_for(left, lambda: not drivers.leftovers(world.cluster) - before, 60, 0.5)
    world.note(told.lines()[-1])
