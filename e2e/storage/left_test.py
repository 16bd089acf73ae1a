"""What counts as left of a driver's tests."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

from . import left, specs


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"kind": kind, "metadata": {"name": name, **place}, "spec": spec}


class LeftTest(unittest.TestCase):
    def test_all_that_hangs_on_the_drivers_volumes_counts_and_nobody_elses(self) -> None:
        kinds: dict[str, list[Any]] = {
            "persistentvolumes": [
                _object("PersistentVolume", "pv", {"csi": {"driver": "known.as"}}),
                _object("PersistentVolume", "other", {"csi": {"driver": "other"}}),
                _object("PersistentVolume", "nfs", {"nfs": {}}),
            ],
            "plugins": [
                _object("Plugin", "p", {"driverName": "d", "kubernetes": {"driverName": "known.as"}}),
                _object("Plugin", "other", {}),
            ],
            "volumes": [
                _object("Volume", "v", {"pluginName": "p"}, "ns"),
                _object("Volume", "v", {"pluginName": "other"}, "elsewhere"),
            ],
            "volumeclaims": [
                _object("VolumeClaim", "c", {"volumeName": "v"}, "ns"),
                _object("VolumeClaim", "c", {"volumeName": "v"}, "elsewhere"),
            ],
            "volumehandles": [
                _object("VolumeHandle", "h", {"driverName": "d"}),
                _object("VolumeHandle", "other", {"driverName": "other"}),
            ],
            "attachments": [
                _object("Attachment", "a", {"fixed": {"driverName": "d"}}),
                _object("Attachment", "other", {"fixed": {"driverName": "other"}}),
            ],
        }
        found = left.of_driver("known.as", lambda kind: kinds[kind])
        expected = {"PersistentVolume pv", "Volume ns/v", "VolumeClaim ns/c", "VolumeHandle h", "Attachment a"}
        self.assertEqual(found, expected)
        self.assertEqual(left.of_driver("nobody", lambda kind: kinds[kind]), set())

    def test_definitions_name_their_driver(self) -> None:
        self.assertEqual([left.driver_of(path) for path in specs.OURS], ["loop.moor.dev", "local.loop.moor.dev"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "definition.yaml"
            for text, name in (
                ('ShortName: x\nDriverInfo:\n  # Its own.\n  SupportedFsType:\n    "": {}\n  Name: "a.b"\n', "a.b"),
                ("StorageClass:\n  Name: no\n", None),
            ):
                path.write_text(text)
                self.assertEqual(left.driver_of(path), name)
