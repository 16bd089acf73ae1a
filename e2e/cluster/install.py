"""Building moor and putting it on a cluster: ours, or the one of the user's KUBECONFIG."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import image, packages, parts
from .chart import CHART, RELEASE
from .cluster import Cluster
from .commands import run
from .messages import Problem, say, step
from .namespace import NAMESPACE
from .paths import KUBECONFIG, REPOSITORY


def foreign_kubeconfig() -> str | None:
    """The KUBECONFIG of a cluster that is not ours; the variable may also point at our own file."""
    value = os.environ.get("KUBECONFIG", "")
    return None if not value or Path(value).resolve() == KUBECONFIG.resolve() else value


def build_binary() -> Path:
    """The release binary, or that of MOOR_PROFILE (dev builds in seconds). Cargo shows its progress only when there is something to build."""
    cargo = os.environ.get("CARGO", "cargo")
    if shutil.which(cargo) is None:
        raise Problem("Rust is needed to build moor, and `cargo` is not in PATH", "install it, see https://rustup.rs")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
    profile = os.environ.get("MOOR_PROFILE", "release")
    binary = target / ("debug" if profile == "dev" else profile) / "moor"
    if not binary.exists():
        say(f"building moor ({profile}), about 6 min the first time")
    done = subprocess.run(
        [cargo, "build", "--profile", profile, "--locked", "--bin", "moor", "--quiet"], cwd=REPOSITORY, check=False
    )
    if done.returncode != 0:
        raise Problem("moor does not build", "the compiler's messages are above")
    _publish(binary)
    return binary


def build_image() -> image.Image:
    packages.require_root()

    parts.ensure(["pause"])
    return image.moor(build_binary())


def install(helm_arguments: Sequence[str] = ()) -> None:
    if not (CHART / "Chart.yaml").exists():
        raise Problem(f"there is no chart in {CHART}")
    foreign = foreign_kubeconfig()
    if foreign is None:
        _install_here(helm_arguments)
    else:
        _install_there(foreign, helm_arguments)


def _install_here(helm_arguments: Sequence[str]) -> None:
    cluster = Cluster.attach()
    built = build_image()
    with step(f"loading {built.reference} into {len(cluster.nodes)} nodes"):
        image.load_all(list(cluster.nodes), built)
    _helm(str(KUBECONFIG), [built.reference, *built.others], helm_arguments)


def _install_there(kubeconfig: str, helm_arguments: Sequence[str]) -> None:
    parts.ensure(["helm", "kubectl"])
    context = run([parts.program("kubectl"), "config", "current-context"], check=False).stdout.strip()
    say(f"using the cluster of KUBECONFIG={kubeconfig} (context {context or 'unknown'}), not the test cluster")
    references = [os.environ.get(name, "") for name in ("IMAGE", "LOOP_DRIVER_IMAGE")]
    if any(references):
        said = " and ".join(reference for reference in references if reference)
        say(f"its nodes must be able to pull {said} (from IMAGE and LOOP_DRIVER_IMAGE)")
    if not all(references):
        say("no image is loaded into its nodes: they pull the chart's defaults; set IMAGE=registry/moor:tag and")
        say("LOOP_DRIVER_IMAGE=registry/moor-loop-driver:tag for others")
        say("(`make image` builds both as one archive, for `docker load`, `ctr images import` or `skopeo copy`)")
    _helm(kubeconfig, references, helm_arguments)


def _helm(kubeconfig: str, references: Sequence[str], helm_arguments: Sequence[str]) -> None:
    """`references`: the image of controller and agents, and that of the loop driver; empty: the chart's."""
    command = [
        str(parts.program("helm")), "upgrade", "--install", RELEASE, str(CHART),
        "--namespace", NAMESPACE, "--create-namespace",
        "--kubeconfig", kubeconfig,
        "--set", "loopDriver.enabled=true",
        "--set", "loopDriver.shared=true",
        "--wait", "--timeout", "3m",
    ]  # fmt: skip
    for value, reference in zip(("image", "loopDriver.image"), references, strict=True):
        if reference:
            repository, _, tag = reference.rpartition(":")
            command += ["--set", f"{value}.repository={repository}", "--set-string", f"{value}.tag={tag}"]
    command += helm_arguments
    say(f"+ helm {' '.join(command[1:])}")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stdout, check=False)
    if done.returncode != 0:
        raise Problem(
            "helm did not finish",
            f"see what its Pods wait for: kubectl --kubeconfig {kubeconfig} -n {NAMESPACE} get pods,events",
        )


def _publish(binary: Path) -> None:
    """Next to the other programs, replaced in one step: the old one may be running."""
    folder = parts.folder()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / ".moor.new"
    shutil.copy2(binary, temporary)
    temporary.replace(folder / "moor")
