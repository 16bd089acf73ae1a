"""The cluster's programs: built from Go modules, once, into one folder outside the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .commands import run
from .messages import Problem, say
from .paths import PARTS_SOURCE, cache

KUBERNETES = "v1.34.4"
HELM = "helm.sh/helm/v4/cmd/helm@v4.3.1"
SNAPSHOT_CONTROLLER = "snapshot-controller"
_SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter"
CSI_SANITY = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.4.0"

_MAJOR, _MINOR, _ = KUBERNETES.removeprefix("v").split(".")
_KUBERNETES_LINK = (
    f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    f" -X k8s.io/component-base/version.gitMajor={_MAJOR}"
    f" -X k8s.io/component-base/version.gitMinor={_MINOR}"
    f" -X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}"
)


@dataclass(frozen=True)
class Part:
    """One program: how it is made and how long that takes the first time on two cores."""

    name: str
    duration: str
    module: str = ""  # a command of a module that has versions of its own
    package: str = ""  # of a module that go.mod names as a tool; without either: a command of our own
    static: bool = False
    tests: bool = False  # the package's tests are the program
    apart: bool = False  # its folder is a module of its own, since it wants other versions than the rest
    optional: bool = False  # built only when it is named

    def command(self, folder: Path) -> list[str]:
        if self.module:
            return ["go", "install", "-trimpath", "-ldflags", "-s -w", self.module]
        # Without -buildvcs=false Go asks git about a checkout that root may not own.
        link = "-s -w" if self.static else _KUBERNETES_LINK
        # Vetting what others have written, and all that it imports, takes longer than compiling it.
        verb = ["test", "-c", "-vet=off"] if self.tests else ["build"]
        return [
            "go", *verb, "-trimpath", "-buildvcs=false", "-ldflags", link,
            "-o", str(folder / self.name), self.package or f"./cmd/{self.name}",
        ]  # fmt: skip

    @property
    def source(self) -> Path:
        """The folder of the module from which it is made."""
        return PARTS_SOURCE / "cmd" / self.name if self.apart else PARTS_SOURCE

    def environment(self, folder: Path) -> Mapping[str, str]:
        settings = {"GOBIN": str(folder), "GOWORK": "off"}
        # They run in containers, and the pause image holds nothing else: none may need a C library.
        return {**settings, "CGO_ENABLED": "0"} if self.static else settings


PARTS = (
    Part("certificates", "5 s", static=True),
    Part("pause", "2 s", static=True),
    Part("mount-driver", "10 s", static=True),
    Part("etcd", "30 s"),
    Part("kube-apiserver", "5 min"),
    Part("kube-controller-manager", "1 min"),
    Part("kube-scheduler", "20 s"),
    Part("kubelet", "1 min"),
    Part("kubectl", "1 min"),
    Part("helm", "3 min", module=HELM),
    Part("csi-sanity", "1 min", module=CSI_SANITY),
    # Kubernetes' own tests, what their Pods run, and what runs several of them at a time.
    Part("e2e.test", "6 min", package="k8s.io/kubernetes/test/e2e", tests=True, optional=True),
    Part("agnhost", "1 min", package="k8s.io/kubernetes/test/images/agnhost", static=True, optional=True),
    Part("ginkgo", "30 s", package="github.com/onsi/ginkgo/v2/ginkgo", optional=True),
    Part(SNAPSHOT_CONTROLLER, "2 min", package=f"{_SNAPSHOTTER}/v8/cmd/snapshot-controller", apart=True, optional=True),
)


def folder() -> Path:
    """Where the programs are. The name holds all that they are made from."""
    digest = hashlib.sha256()
    own = [part for part in PARTS if not part.module]
    sources = [source for part in own for source in sorted((PARTS_SOURCE / "cmd" / part.name).glob("*.go"))]
    modules = [PARTS_SOURCE, *(part.source for part in own if part.apart)]
    for source in (*(module / file for module in modules for file in ("go.mod", "go.sum")), *sources):
        digest.update(f"{source.relative_to(PARTS_SOURCE)}\0".encode())
        digest.update(source.read_bytes())
    for word in (_KUBERNETES_LINK, HELM, CSI_SANITY, platform.machine(), os.environ.get("KUBEBUILDER_ASSETS", "")):
        digest.update(f"{word}\0".encode())
    return cache() / f"parts-{digest.hexdigest()[:12]}"


def program(name: str) -> Path:
    return folder() / name


def snapshot_kinds(*, groups: bool = False) -> list[Path]:
    """The definitions of VolumeSnapshots, or of groups of them, and what belongs to them, from the module of their Go types."""
    (part,) = [part for part in PARTS if part.name == SNAPSHOT_CONTROLLER]
    told = run(["go", "mod", "download", "-json", f"{_SNAPSHOTTER}/client/v8"], cwd=part.source, env={"GOWORK": "off"}).stdout
    group = "groupsnapshot" if groups else "snapshot"
    return sorted((Path(json.loads(told)["Dir"]) / "config" / "crd").glob(f"{group}.storage.k8s.io_*.yaml"))


def ensure(names: Iterable[str] | None = None) -> Path:
    """Builds what is missing, of those named or else of all that are not optional, and returns their folder."""
    target = folder()
    wanted = None if names is None else set(names)
    chosen = [part for part in PARTS if (not part.optional if wanted is None else part.name in wanted)]
    if all((target / part.name).exists() for part in chosen):
        return target
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        _lock(lock.fileno())
        missing = [part for part in chosen if not (target / part.name).exists()]
        missing = [part for part in missing if not _link_prebuilt(part, target)]
        if missing:
            _build(missing, target)
    return target


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another run is building the cluster's programs; waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _link_prebuilt(part: Part, target: Path) -> bool:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets or not (Path(assets) / part.name).exists():
        return False
    (target / part.name).symlink_to((Path(assets) / part.name).resolve())
    say(f"{part.name}: taken from KUBEBUILDER_ASSETS")
    return True


def _build(missing: list[Part], target: Path) -> None:
    if shutil.which("go") is None:
        raise Problem(
            f"Go is needed to build {', '.join(part.name for part in missing)}, and `go` is not in PATH",
            "install Go 1.24 or newer (https://go.dev/dl); those found in KUBEBUILDER_ASSETS are not built",
        )
    say(f"building the test cluster's programs from their Go modules into {target}")
    say("(only the first time; Go modules are downloaded on the way)")
    staging = target / ".building"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for number, part in enumerate(missing, start=1):
        start = time.monotonic()
        line = f"[{number}/{len(missing)}] {part.name} … about {part.duration} the first time … "
        print(line, end="", file=sys.stderr, flush=True)
        run(part.command(staging), cwd=part.source, env=part.environment(staging))
        # Moved only when whole: a build that was interrupted leaves nothing that looks finished.
        (staging / part.name).rename(target / part.name)
        say(f"{time.monotonic() - start:.0f} s")
    shutil.rmtree(staging, ignore_errors=True)
