"""Self-tests of the leak check, on folders and mount tables made here."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

from .leaks import OURS, directories, driver_leftovers, mount_point, mounts, records

_ROOT = "22 1 0:20 / / rw shared:1 - ext4 /dev/vda rw"


class LeaksTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_clean_machine(self) -> None:
        self.assertEqual(mounts([_ROOT], Path("/var/lib/kubelet")), set())
        for look in (directories, records, driver_leftovers):
            self.assertEqual(look(self.folder), set())

    def test_mounts_of_ours_and_no_others(self) -> None:
        ours = f"40 22 7:0 / /var/lib/kubelet/{OURS}/staging/u rw shared:5 - ext4 /dev/loop0 rw"
        folder = f"42 22 0:51 / /var/lib/kubelet/{OURS}/targets rw shared:7 - tmpfs moor rw"
        other = "41 22 0:50 / /var/lib/kubelet/pods/p/volumes/v rw shared:6 - tmpfs tmpfs rw"
        self.assertEqual(
            mounts([_ROOT, ours, folder, other], Path("/var/lib/kubelet")),
            {f"mount /var/lib/kubelet/{OURS}/staging/u"},
        )

    def test_mounts_that_kubelet_asked_for(self) -> None:
        staged = "40 22 7:0 / /var/lib/kubelet/plugins/kubernetes.io/csi/d/h/globalmount rw shared:5 - ext4 /dev/loop0 rw"
        published = "41 22 7:0 / /var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/v/mount rw shared:5 - ext4 /dev/loop0 rw"
        found = mounts([_ROOT, staged, published], Path("/var/lib/kubelet"))
        self.assertEqual(found, {f"mount {mount_point(line)}" for line in (staged, published)})

    def test_mount_points_are_unescaped(self) -> None:
        self.assertEqual(mount_point(r"40 22 7:0 / /a\040b\134c rw - ext4 /dev/loop0 rw"), r"/a b\c")

    def test_directories(self) -> None:
        (self.folder / OURS / "staging" / "u1").mkdir(parents=True)
        (self.folder / OURS / "claims" / "u2" / "target").mkdir(parents=True)
        found = {f"directory {OURS}/staging/u1", f"directory {OURS}/claims/u2"}
        self.assertEqual(directories(self.folder), found)

    def test_records(self) -> None:
        (self.folder / "records").mkdir()
        (self.folder / "records" / "u.json").touch()
        self.assertEqual(records(self.folder), {"record u.json"})

    def test_driver_state(self) -> None:
        volume = self.folder / "volumes" / "vol-1"
        volume.mkdir(parents=True)
        (volume / "attachments.json").write_text(json.dumps({"node-1": {}}))
        (volume / "dev.t.rw.node-1").touch()
        held = self.folder / "nodes" / "node-2" / "volumes"
        held.mkdir(parents=True)
        (held / "vol-1.json").touch()
        self.assertEqual(
            driver_leftovers(self.folder),
            {
                "driver: volume vol-1",
                "driver: vol-1 attached to node-1",
                "driver: vol-1 has dev.t.rw.node-1",
                "driver: vol-1 held by node-2",
            },
        )
