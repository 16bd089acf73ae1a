"""The files a node starts from: its first script, and the settings of containerd, CNI and kubelet."""

from __future__ import annotations

import functools
import json
import uuid
from pathlib import Path

from . import cgroups, packages
from .certificates import AUTHORITY, node_identity
from .commands import run
from .messages import Problem
from .network import Network, inside, namespace
from .paths import STATE, node_directory

# What a node must not share with its neighbours, under the folder of the node that holds it.
PRIVATE = {
    "kubelet": Path("/var/lib/kubelet"),
    "containerd": Path("/var/lib/containerd"),
    "moor": Path("/var/lib/moor"),
    # Of a loop driver whose volumes stay on their node (e2e/storage).
    "moor-loop-local": Path("/var/lib/moor-loop-local"),
    "pod-logs": Path("/var/log/pods"),
    "container-logs": Path("/var/log/containers"),
}
# The loop driver's folder, the same on all nodes as a file server's would be: volumes can move.
SHARED_SOURCE = STATE / "moor-loop"
SHARED = Path("/var/lib/moor-loop")

CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")


def mount_points() -> list[Path]:
    return [*PRIVATE.values(), SHARED]


def init_script(name: str) -> Path:
    return node_directory(name) / "init.sh"


def write(name: str, number: int, network: Network) -> None:
    """Everything but the boot: written once per node."""
    folder = node_directory(name)
    for private in PRIVATE:
        (folder / private).mkdir(parents=True, exist_ok=True)
    SHARED_SOURCE.mkdir(exist_ok=True)
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni" / "10-moor.conflist").write_text(json.dumps(_cni(number, network), indent=1))
    (folder / "containerd.toml").write_text(_containerd(folder))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(name, number, network), indent=1))


def write_boot(name: str, number: int) -> list[str]:
    """The scripts of one boot, and the command that runs them. A boot has an id of its own."""
    folder = node_directory(name)
    (folder / "boot-id").write_text(f"{uuid.uuid4()}\n")
    init_script(name).write_text(_init(name, folder))
    launch = folder / "launch.sh"
    launch.write_text(_launch(name, number))
    return ["sh", str(launch)]


def _launch(name: str, number: int) -> str:
    """Enters the node's cgroup first, since a cgroup namespace is rooted where its maker is."""
    inner = " ".join(
        [
            *inside(namespace(number)),
            "unshare --cgroup sh -ec",
            f"'{_enter(cgroups.inner_groups(name))}"
            f"exec unshare --mount --uts --ipc --pid --fork sh {init_script(name)}'",
        ]
    )
    return f"set -e\n{_enter(cgroups.outer_groups(name))}exec {inner}\n"


def _enter(groups: list[Path]) -> str:
    return "".join(f"echo $$ > {group}/cgroup.procs\n" for group in groups)


def _init(name: str, folder: Path) -> str:
    """Runs as process 1 of the node. Killing it ends everything in the node at once."""
    binds = [(folder / source, target) for source, target in PRIVATE.items()]
    binds.append((SHARED_SOURCE, SHARED))
    return "\n".join(
        [
            "set -e",
            # Still the host's /proc, so this is the pid that the host knows.
            "read -r pid rest < /proc/self/stat",
            f"hostname {name}",
            "mount -t sysfs sysfs /sys",
            cgroups.mount_script().rstrip(),
            # As on a real machine, nothing in /run outlives a crash.
            "mount -t tmpfs -o mode=755 tmpfs /run",
            "mkdir -p /run/containerd /run/netns /run/lock",
            *(f"mount --bind {source} {target}" for source, target in binds),
            "mount -t proc proc /proc",
            f"mount --bind {folder / 'boot-id'} /proc/sys/kernel/random/boot_id",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            "mount --make-rshared /",
            "cd /",
            f"echo $pid > {folder}/init-pid.new",
            f"mv {folder}/init-pid.new {folder}/init-pid",
            # While it waits, the shell also collects the orphans of the node.
            "sleep infinity &",
            "wait",
            "",
        ]
    )


def window_script(name: str) -> str:
    """A process for those who look in with `nsenter -m` alone: a peer of the node's mount namespace, in which every
    mount appears and goes as in the node, but with a /proc in which a process of the host finds itself."""
    folder = node_directory(name)
    return "\n".join(
        [
            "set -e",
            "mount -n --make-rprivate /proc",
            "mount -n -t proc proc /proc",
            f"mount -n --bind {folder / 'boot-id'} /proc/sys/kernel/random/boot_id",
            "cd /",
            f"echo $$ > {folder}/pid.new",
            f"mv {folder}/pid.new {folder}/pid",
            "exec sleep infinity",
            "",
        ]
    )


def _cni(number: int, network: Network) -> dict[str, object]:
    return {
        "cniVersion": "0.4.0",
        "name": "moor-e2e",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": network.pods(number)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _containerd(folder: Path) -> str:
    plugins = packages.cni_folder()
    if plugins is None:
        raise Problem("the CNI plugins are missing", "apt-get install containernetworking-plugins")
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "moor.dev/pause:1"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter()}"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{folder / "cni"}"
"""


@functools.cache
def snapshotter() -> str:
    """overlayfs, unless the checkout is itself on a file system that cannot carry one (an overlay, say)."""
    trial = STATE / "overlay-trial"
    for part in ("lower", "upper", "work", "merged"):
        (trial / part).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={trial}/lower,upperdir={trial}/upper,workdir={trial}/work"
    mounted = run(["mount", "-t", "overlay", "-o", options, "overlay", trial / "merged"], check=False)
    if mounted.returncode != 0:
        return "native"
    run(["umount", "--lazy", trial / "merged"])
    return "overlayfs"


def _kubelet(name: str, number: int, network: Network) -> dict[str, object]:
    identity = node_identity(name, network.node(number))
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(AUTHORITY)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(identity.certificate),
        "tlsPrivateKeyFile": str(identity.key),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # Nothing serves DNS here; with an address set, kubelet does not warn about each Pod.
        "clusterDNS": [f"{network.prefix}.1.10"],
        "clusterDomain": "cluster.local",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        # A developer's full disk must not evict the Pods under test, nor delete their images.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
