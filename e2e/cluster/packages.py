"""Debian packages the harness needs, installed only when something of them is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .commands import run
from .messages import Problem, step

# A program of each package. Programs, not packages, are looked for: other distributions of
# containerd or runc serve as well.
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "debootstrap": "debootstrap",
}
_CNI_PACKAGE = "containernetworking-plugins"
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("ptp", "host-local", "loopback")


def require_root() -> None:
    if os.geteuid() != 0:
        raise Problem(
            "the cluster's nodes are network and mount namespaces, which only root can make",
            'run the same command as root, for example: sudo -E env PATH="$PATH" make up',
        )


def cni_folder() -> Path | None:
    for folder in _CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in _CNI_PLUGINS):
            return folder
    return None


def missing() -> list[str]:
    packages = {package for program, package in _PROGRAMS.items() if _which(program) is None}
    if cni_folder() is None:
        packages.add(_CNI_PACKAGE)
    return sorted(packages)


def ensure() -> None:
    wanted = missing()
    if not wanted:
        return
    if shutil.which("apt-get") is None:
        raise Problem(
            f"missing: {' '.join(wanted)} (Debian package names), and there is no apt-get here",
            "install them with this system's package manager and run the command again",
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing Debian packages: {' '.join(wanted)} (about 20 s)"):
        run(["apt-get", "update", "-q"], env=quiet)
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *wanted], env=quiet)
    still = missing()
    if still:
        raise Problem(f"apt-get installed {' '.join(wanted)}, yet programs of {' '.join(still)} are not in PATH")


def _which(program: str) -> str | None:
    # mkfs and ip live in sbin folders, which a user's PATH often lacks.
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return shutil.which(program, path=path)
