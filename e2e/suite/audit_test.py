"""Self-tests of the counting of API writes."""

from __future__ import annotations

import json
import unittest

from .audit import about_claims, parse, parse_locks, told
from .trace import Lock


def entry(account: str, verb: str, resource: str, code: int = 200, **target: str) -> str:
    user = {
        "username": f"system:serviceaccount:{account}",
        "extra": {"authentication.kubernetes.io/pod-name": ["pod-a"]},
    }
    reference = {"resource": resource, "apiGroup": "moor.dev", "name": "x", **target}
    content = {"stage": "ResponseComplete", "verb": verb, "user": user, "objectRef": reference}
    return json.dumps({**content, "responseStatus": {"code": code}}) + "\n"


class AuditTest(unittest.TestCase):
    def test_only_writes_of_moor_count(self) -> None:
        lines = [
            entry("moor-system:moor-agent", "patch", "volumeclaims", subresource="status"),
            entry("moor-system:moor-agent", "get", "volumeclaims"),
            entry("kube-system:namespace-controller", "delete", "volumeclaims"),
            entry("moor-system:moor-controller", "create", "attachments", 409),
            entry("moor-system:moor-agent", "create", "events", apiGroup="events.k8s.io"),
            entry("moor-system:moor-agent", "patch", "plugininstances", subresource="status"),
            '{"half a li',
        ]
        found = parse(lines)
        self.assertEqual(len(found), 4)
        counted = about_claims(found)
        self.assertEqual([write.resource for write in counted], ["volumeclaims/status", "attachments"])
        self.assertEqual([write.accepted for write in counted], [True, False])
        self.assertEqual(counted[0].pod, "pod-a")
        self.assertEqual(told(counted), "agent patch volumeclaims/status, controller create attachments refused (409)")

    def test_locks_are_what_was_asked_for_and_made(self) -> None:
        def made(verb: str, resource: str, code: int) -> str:
            spec = {"spec": {"volumeHandle": "vol-1", "fixed": {"nodeID": "node-1"}}}
            asked = {"requestReceivedTimestamp": "2026-01-01T00:00:01.250999Z", "requestObject": spec}
            return json.dumps({**json.loads(entry("a:b", verb, resource, code)), **asked}) + "\n"

        lines = [
            made("create", "attachments", 201),
            made("create", "attachments", 409),
            made("create", "volumes", 201),
            entry("a:b", "delete", "attachments"),
            '{"attachments" "create"',
        ]
        self.assertEqual(parse_locks(lines), [Lock(1767225601250, "vol-1", "node-1")])

    def test_repeats_are_counted(self) -> None:
        line = entry("moor-system:moor-agent", "patch", "attachments", subresource="status")
        self.assertEqual(told(parse([line, line])), "2x agent patch attachments/status")
        self.assertEqual(told([]), "nothing")
