"""The cluster's network: one bridge, one namespace for the control plane and one per node.

The control plane has a namespace of its own, so that its ports never collide with anything
on the host. Nothing here is reachable from outside the machine, nor leads out of it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from .commands import run
from .messages import Problem

BRIDGE = "moor-br0"
CONTROL = "moor-control"
MAX_NODES = 100
_RULE = ["-i", BRIDGE, "-o", BRIDGE, "-j", "ACCEPT", "-m", "comment", "--comment", "moor-e2e"]


@dataclass(frozen=True)
class Network:
    """The addresses, all derived from the first two bytes."""

    prefix: str

    @classmethod
    def from_environment(cls) -> Network:
        prefix = os.environ.get("MOOR_NETWORK", "10.99")
        if not re.fullmatch(r"\d{1,3}\.\d{1,3}", prefix) or any(int(part) > 255 for part in prefix.split(".")):
            raise Problem(f"MOOR_NETWORK={prefix} is not the first two bytes of an address", "like MOOR_NETWORK=10.98")
        return cls(prefix)

    @property
    def everything(self) -> str:
        return f"{self.prefix}.0.0/16"

    @property
    def host(self) -> str:
        return f"{self.prefix}.0.254"

    @property
    def control(self) -> str:
        return f"{self.prefix}.0.253"

    @property
    def services(self) -> str:
        return f"{self.prefix}.1.0/24"

    @property
    def api(self) -> str:
        """The first service address. The API server itself listens there: no kube-proxy is needed."""
        return f"{self.prefix}.1.1"

    def node(self, number: int) -> str:
        return f"{self.prefix}.0.{number}"

    def pods(self, number: int) -> str:
        return f"{self.prefix}.{10 + number}.0/24"

    def check_free(self) -> None:
        wanted = ipaddress.ip_network(self.everything)
        for route in json.loads(run(["ip", "-4", "-j", "route", "show", "table", "all"]).stdout or "[]"):
            if route.get("dst") in (None, "default") or route.get("dev") == BRIDGE:
                continue
            if ipaddress.ip_network(route["dst"], strict=False).overlaps(wanted):
                raise Problem(
                    f"this machine already routes {route['dst']} (device {route.get('dev')}), inside {self.everything}",
                    "choose another range for the test cluster, for example: make up MOOR_NETWORK=10.98",
                )

    def create(self, count: int) -> None:
        _open_namespace(CONTROL)
        for number in range(1, count + 1):
            _open_namespace(namespace(number))
        lines = [
            f"link add {BRIDGE} type bridge",
            f"link set {BRIDGE} addrgenmode none",
            f"addr add {self.host}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            _plug(0, CONTROL),
            "link set moor-v0 addrgenmode none",
            "link set moor-v0 up",
            f"route add {self.api}/32 via {self.control}",
        ]
        for number in range(1, count + 1):
            lines += [
                _plug(number, namespace(number)),
                f"link set moor-v{number} addrgenmode none",
                f"link set moor-v{number} up",
                f"route add {self.pods(number)} via {self.node(number)}",
            ]
        _batch(lines)
        _batch([*_interface(self.control), f"addr add {self.api}/32 dev lo", *self._pod_routes(count)], CONTROL)
        for number in range(1, count + 1):
            routes = [
                f"route add {self.api}/32 via {self.control}",
                # No other service address exists: fail at once instead of after a timeout.
                f"route add unreachable {self.services}",
                *self._pod_routes(count, without=number),
            ]
            _batch([*_interface(self.node(number)), *routes], namespace(number))
        _accept_forwarding()

    def _pod_routes(self, count: int, without: int = 0) -> list[str]:
        others = (number for number in range(1, count + 1) if number != without)
        return [f"route add {self.pods(number)} via {self.node(number)}" for number in others]


def namespace(number: int) -> str:
    return f"moor-node-{number}"


def inside(name: str) -> list[str]:
    """Runs what follows in a network namespace. `ip netns exec` would hide the cgroup mounts."""
    return ["nsenter", f"--net=/run/netns/{name}"]


def set_link(number: int, up: bool) -> None:
    run(["ip", "link", "set", f"moor-v{number}", "up" if up else "down"])


def namespaces() -> list[str]:
    folder = Path("/run/netns")
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if re.fullmatch(r"moor-(control|node-\d+)", entry.name))


def exists() -> bool:
    return Path(f"/sys/class/net/{BRIDGE}").exists() or bool(namespaces())


def remove() -> None:
    for name in namespaces():
        run(["ip", "netns", "del", name], check=False)
        Path("/run/netns", name).unlink(missing_ok=True)
    # The host ends of the links go with their namespaces, but not at once.
    for link in Path("/sys/class/net").glob("moor-v*"):
        run(["ip", "link", "del", link.name], check=False)
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        run(["ip", "link", "del", BRIDGE])
    while shutil.which("iptables") and run(["iptables", "-D", "FORWARD", *_RULE], check=False).returncode == 0:
        continue


def _open_namespace(name: str) -> None:
    run(["ip", "netns", "add", name])


def _plug(number: int, target: str) -> str:
    return f"link add moor-v{number} master {BRIDGE} type veth peer name eth0 netns {target}"


def _interface(address: str) -> list[str]:
    return ["link set lo up", "link set eth0 addrgenmode none", f"addr add {address}/24 dev eth0", "link set eth0 up"]


def _batch(lines: list[str], name: str | None = None) -> None:
    target = ["-n", name] if name else []
    run(["ip", *target, "-batch", "-"], stdin="\n".join(lines) + "\n")


def _accept_forwarding() -> None:
    """Container engines let the kernel filter bridged packets and drop what they do not know."""
    if shutil.which("iptables") is None:
        return
    policy = run(["iptables", "-S", "FORWARD"], check=False).stdout
    if policy.startswith("-P FORWARD") and not policy.startswith("-P FORWARD ACCEPT\n"):
        run(["iptables", "-I", "FORWARD", *_RULE])
