"""Taking moor off a cluster: refused while claims live, and with mounts kept, undone by a reinstall."""

from __future__ import annotations

import json
import subprocess
import tempfile

from e2e.cluster.install import CHART, NAMESPACE, RELEASE

from ..calls import mutating
from ..helm import helm
from ..objects import use
from ..registry import scenario
from ..world import World, expect
from .adoption import mount_ids

KEEP = "uninstall.keepMounts"


@scenario("helm uninstall is refused while claims live; a reinstall keeps their mounts and data", limit=300)
def uninstall(world: World) -> None:
    _live_claims(world)
    values = _helm(world, "get", "values", RELEASE, "--output", "yaml").stdout
    _expect_refusal(world)

    mounted = [mount_ids(node) for node in world.cluster.nodes]
    expect(all(mounted), "nothing is mounted")
    calls = world.driver.last()
    _upgrade(world, values, keep=True)
    _helm(world, "uninstall", RELEASE, "--wait", "--timeout", "2m")
    world.cluster.wait_for("moor's Pods to end", lambda: not world.pods.objects(), 60)
    expect([mount_ids(node) for node in world.cluster.nodes] == mounted, "mounts went with the uninstall")
    _expect_files(world)

    _upgrade(world, values, keep=False)
    world.pods.await_ready()
    # The test of the controllers finds them by a name, and this cluster has no server for names.
    _helm(world, "test", RELEASE, "--filter", "name=moor-test-agent")
    world.await_ready("Plugin", "loop.moor.dev")
    # When a claim has come and gone on each node, the agents have looked at all there is.
    for node in world.cluster.nodes:
        world.ready_claim(f"proof-{node.name}", node, volumeName="proof")
        world.remove("VolumeClaim", f"proof-{node.name}")
    live = {world.handle(name) for name in ("files", "raw", "elsewhere")}
    touched = [call.told() for call in mutating(world.calls(after=calls)) if call.volume in live]
    expect(not touched, "calls for live claims:\n" + "\n".join(touched))
    expect([mount_ids(node) for node in world.cluster.nodes] == mounted, "the mounts are others after the reinstall")
    world.await_ready("VolumeClaim", "files", "raw", "elsewhere", timeout=5)
    _expect_files(world)
    world.remove("VolumeClaim", "files", "raw", "elsewhere")
    world.remove("Volume", "files", "raw", "elsewhere", "proof")


def _live_claims(world: World) -> None:
    for name in ("files", "raw", "elsewhere", "proof"):
        world.volume(name, capabilities=[use(), use(block=True)])
    world.claim("files", world.first, volumeName="files")
    world.claim("raw", world.first, volumeName="raw", attachmentMode="BlockDevice")
    world.claim("elsewhere", world.second, volumeName="elsewhere")
    world.await_ready("Volume", "proof")
    world.await_ready("VolumeClaim", "files", "raw", "elsewhere")
    world.write(world.first, f"{world.target('files')}/file", "files")
    world.write(world.second, f"{world.target('elsewhere')}/file", "elsewhere")
    world.first.shell(f"echo raw | dd of={world.target('raw')} conv=fsync,notrunc status=none")


def _expect_files(world: World) -> None:
    world.expect_text(world.first, f"{world.target('files')}/file", "files")
    world.expect_text(world.second, f"{world.target('elsewhere')}/file", "elsewhere")
    start = world.first.shell(f"head -c 4 {world.target('raw')}")
    expect(start == "raw\n", f"the device begins with {start!r}")


def _expect_refusal(world: World) -> None:
    refused = _helm(world, "uninstall", RELEASE, "--wait", "--timeout", "2m", check=False)
    said = refused.stdout + refused.stderr
    expect(refused.returncode != 0, f"helm uninstall was not refused: {said}")
    for words in (
        "3 claims are still granted",
        f"{world.namespace}/files on node node-1",
        "--no-hooks",
        "helm rollback",
    ):
        expect(words in said, f"the refusal does not say {words!r}: {said}")
    expect(not world.pods.ailing(), f"the refused uninstall has taken something away: {world.pods.ailing()}")
    # As it says: Helm believes that it is uninstalling.
    releases = json.loads(_helm(world, "history", RELEASE, "--output", "json").stdout)
    _helm(world, "rollback", RELEASE, str(max(entry["revision"] for entry in releases)), "--wait", "--timeout", "2m")


def _upgrade(world: World, values: str, *, keep: bool) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        _helm(
            world, "upgrade", "--install", RELEASE, str(CHART), "--create-namespace", "--values", file.name,
            "--set", f"{KEEP}={str(keep).lower()}", "--wait", "--timeout", "2m",
        )  # fmt: skip


def _helm(world: World, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return helm(world, NAMESPACE, *arguments, check=check)
