"""A driver that refuses: it is shown, tried again, and undone if it was given up."""

from __future__ import annotations

from functools import partial

from ..calls import ATTACH, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, mutating
from ..driver import AFTER, BEFORE
from ..registry import scenario
from ..world import World, expect


@scenario("a Volume of a failing driver shows the call, the code, the attempts, and recovers")
def failing_driver(world: World) -> None:
    fault = world.driver.fail("CreateVolume", "ResourceExhausted")
    world.volume()
    failing = world.await_that("Volume", "data", "to show a failed call", lambda item: item["status"].get("lastError"))
    shown = failing["status"]["lastError"]
    expect((shown["rpc"], shown["code"]) == ("CreateVolume", "ResourceExhausted"), f"lastError is {shown}")
    expect(failing["status"].get("attempts", 0) >= 1, f"attempts is {failing['status'].get('attempts')}")
    expect(failing["status"].get("nextRetry"), "nextRetry is not set")
    fault.release()
    ready = world.await_ready("Volume", "data", timeout=20)[0]
    expect(not ready["status"].get("lastError"), f"the error is still shown: {ready['status']}")

    fault = world.driver.fail("NodeStageVolume", "Internal")
    world.claim("claim", world.first)
    failing = world.await_reason("VolumeClaim", "claim", "NodeStageFailed", "Internal")
    expect(failing["status"]["lastError"]["rpc"] == "NodeStageVolume", f"{failing['status']}")
    fault.release()
    world.await_ready("VolumeClaim", "claim", timeout=20)


# A call, a moment in it, and a code. After the moment something is left at the driver.
_HALF_DONE = (
    (ATTACH, BEFORE, "Internal"),
    (ATTACH, AFTER, "Internal"),
    (ATTACH, AFTER, "Unavailable"),
    (STAGE, "attached", "Internal"),
    (STAGE, "mounted", "Internal"),
    (STAGE, AFTER, "DeadlineExceeded"),
    (PUBLISH, "bound", "Internal"),
    (PUBLISH, AFTER, "Unknown"),
)


@scenario("a claim that is given up after a failed call leaves nothing, whatever the call had done")
def given_up(world: World) -> None:
    names = [f"data-{number}" for number, _ in enumerate(_HALF_DONE)]
    for name in names:
        world.volume(name)
    world.await_ready("Volume", *names)
    for name, (rpc, when, code) in zip(names, _HALF_DONE, strict=True):
        fault = world.driver.fail(rpc, code, when)
        world.claim(name, world.first, volumeName=name)
        kind, failing = ("Attachment", _attachment(world, name)) if rpc == ATTACH else ("VolumeClaim", name)
        world.await_that(kind, failing, f"to show that {rpc} failed", lambda item: item["status"].get("lastError"))
        world.delete("VolumeClaim", name)
        world.await_gone("VolumeClaim", name, 20)
        fault.release()


def _attachment(world: World, claim: str) -> str:
    granted = world.await_that("VolumeClaim", claim, "to be granted", lambda item: item["spec"].get("assignment"))
    return str(granted["spec"]["assignment"]["attachment"])


_MADE = (ATTACH, STAGE, PUBLISH)
_UNDONE = {ATTACH: DETACH, STAGE: UNSTAGE, PUBLISH: UNPUBLISH}


@scenario("a claim that is deleted while it is attached or staged is undone, and nothing else is")
def deleted_on_the_way(world: World) -> None:
    world.ready_volume()
    volume = world.handle()
    for rpc in (ATTACH, STAGE):
        start, fault = world.driver.last(), world.driver.hang(rpc, AFTER)
        world.claim("claim", world.first)
        world.driver.await_met(fault)
        world.delete("VolumeClaim", "claim")
        fault.release()
        world.await_gone("VolumeClaim", "claim", 20)
        # The attach may begin before the claim is assigned. A claim that is deleted then goes at once; what was begun
        # for it is undone by its Attachment.
        world.cluster.wait_for("the Attachment to be gone", lambda: not world.attachments(), 20, 0.05)
        found = [call.rpc for call in mutating(world.calls(volume=volume, after=start))]
        # Who makes the calls may hear of the deletion later than the driver does that it may answer.
        made = _MADE[: len(found) // 2]
        wanted = [*made, *(_UNDONE[each] for each in reversed(made))]
        expect(rpc in made and found == wanted, f"after {rpc} the calls were {', '.join(found)}")


@scenario("an undo that fails is tried until it succeeds, and says so")
def failing_undo(world: World) -> None:
    world.ready_volume()
    world.ready_claim("claim", world.first)
    attachment = str(world.attachment_of("claim")["metadata"]["name"])
    faults = {
        UNSTAGE: world.driver.fail(UNSTAGE, "Internal", "unmounted"),
        DETACH: world.driver.fail(DETACH, "Unavailable", AFTER),
    }
    world.delete("VolumeClaim", "claim")
    places = (("VolumeClaim", "claim"), ("Attachment", attachment))
    for rpc, fault in faults.items():
        # On the claim or on its Attachment, whoever does the call.
        shown = partial(_is_shown, world, places, rpc)
        world.cluster.wait_for(f"a status to show that {rpc} failed", shown, 20, 0.05)
        fault.release()
    world.await_gone("VolumeClaim", "claim", 30)


def _is_shown(world: World, places: tuple[tuple[str, str], ...], rpc: str) -> bool:
    found = [item["status"] for kind, name in places if (item := world.find(kind, name))]
    return any((status.get("lastError") or {}).get("rpc") == rpc and status.get("nextRetry") for status in found)
