"""Several claims on one Attachment: staged once, unstaged after the last."""

from __future__ import annotations

from ..calls import ATTACH, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE
from ..registry import scenario
from ..world import World, expect
from .file_systems import expect_read_only


@scenario("two claims share a volume on one node, unstaged only after the last")
def two_claims_share(world: World) -> None:
    world.ready_volume()
    volume, start = world.handle(), world.driver.last()
    one = world.ready_claim("one", world.first)
    two = world.ready_claim("two", world.first)
    expect(one != two, "both claims have the same path")
    granted = [world.get("VolumeClaim", name)["spec"]["assignment"]["attachmentUID"] for name in ("one", "two")]
    expect(granted[0] == granted[1], "the claims have an Attachment each")
    world.write(world.first, f"{one}/file", "shared\n")
    world.expect_text(world.first, f"{two}/file", "shared\n")
    world.expect_calls([ATTACH, STAGE, PUBLISH, PUBLISH], volume=volume, after=start)

    start = world.driver.last()
    world.remove("VolumeClaim", "one")
    world.expect_calls([UNPUBLISH], volume=volume, after=start)
    world.expect_text(world.first, f"{two}/file", "shared\n")
    world.write(world.first, f"{two}/file", "still here\n")

    # One more joins what is there.
    three = world.ready_claim("three", world.first)
    world.expect_text(world.first, f"{three}/file", "still here\n")
    start = world.driver.last()
    world.remove("VolumeClaim", "two", "three")
    world.expect_calls([UNPUBLISH, UNPUBLISH, UNSTAGE, DETACH], volume=volume, after=start)


@scenario("a single writer is alone, also on its own node")
def single_writer_is_alone(world: World) -> None:
    mode = "SingleNodeSingleWriter"
    world.ready_volume(capabilities=[{"accessMode": mode, "attachmentMode": "FileSystem"}])
    world.ready_claim("one", world.first, accessMode=mode)
    world.claim("two", world.first, accessMode=mode)
    world.await_reason("VolumeClaim", "two", "Held", f"{world.namespace}/one")
    world.remove("VolumeClaim", "one")
    world.await_ready("VolumeClaim", "two", timeout=20)


@scenario("claims that share a volume on one node have their own mount flags each")
def own_mount_flags(world: World) -> None:
    world.ready_volume()
    node = world.first
    reader = world.ready_claim("reader", node, readOnly=True)
    # The driver gives its mount no flag that the claim names; the agent does, in the node's namespace.
    strict = world.ready_claim("strict", node, mountOptions={"mountFlags": ["noexec", "nosuid"]})
    plain = world.ready_claim("plain", node)
    world.write(node, f"{plain}/program", "#!/bin/sh\n")
    node.exec("chmod", "+x", f"{plain}/program")
    node.exec(f"{plain}/program")
    tried = node.exec(f"{strict}/program", check=False)
    expect("Permission denied" in tried.stderr, f"a program of a noexec claim was run: {tried}")
    expect_read_only(node, f"{reader}/program")
    world.write(node, f"{strict}/file", "written\n")
    world.remove("VolumeClaim", "reader", "strict")
    node.exec(f"{plain}/program")
    world.write(node, f"{plain}/file", "written again\n")
