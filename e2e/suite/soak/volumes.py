"""A soak of volumes: so many of them live and end under faults and kills, and at the end the driver must have none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from e2e.cluster import ApiError, Problem

from .. import audit, calls, leaks, objects
from ..calls import Call
from ..content import MEBIBYTE
from ..driver import Fault
from ..objects import Object
from ..pods import AGENT, CONTROLLER
from ..world import Failed, World, expect
from .actions import KILL, Action
from .hands import Hands
from .invariants import broken
from .lives import CLAIM, DELETE, EXPAND, MODIFY, RELEASE, SNAPSHOT, Death, Event, Forget, Life, Plan, Step, Trouble
from .run import Tell, until_nothing_moves

# How many a short soak has, and of which seed: one with copies of both kinds, and kills of each role.
SHORT, SHORT_SEED = 60, 2
# So many volumes live at a time.
WIDTH = 40
# Longest time in which nothing comes of what was asked for. The longest pause between two tries is five minutes.
STILLNESS = 600
# By which the driver refuses to copy a volume whose file system is being made, or was when it was killed.
TOLERATED = frozenset({"FailedPrecondition"})
# By which a Volume says that what it is to be made of is not there, not yet or not any more.
_NO_SOURCE = "SourceNotUsable"
_KINDS = ("Volume", "Snapshot", "VolumeClaim")

# By kind, the objects of the namespace by their names.
Seen = dict[str, dict[str, Object]]


def command(seed: int, volumes: int) -> str:
    """What reproduces a run."""
    return f"make soak SEED={seed} MINUTES=0 VOLUMES={volumes}"


def soak(world: World, seed: int, volumes: int, tell: Tell) -> None:
    """Fails with the first violation, and with the command that does the same again."""
    hands, before, log = Hands(world, seed), leaks.leftovers(world.cluster), audit.position(world.cluster)
    kept, start, began = world.driver.kept(), world.driver.last(), time.monotonic()
    crowd = _Crowd(hands, tell)
    try:
        try:
            crowd.act(Plan(seed, volumes))
            tell("now all of it has to come to rest, and go")
            hands.restore()
            crowd.clear()
            until_nothing_moves(hands, lambda: sorted(leaks.leftovers(world.cluster) - before))
            orphans = sorted(world.driver.kept() - kept)
            expect(not orphans, f"the driver keeps {orphans}, and nobody has asked for it any more")
            made = world.calls(after=start)
            expect_balance(made)
            expect_no_refusal(audit.writes(world.cluster, log))
            for role in (CONTROLLER, AGENT):
                expect_calm(world.pods.logs(role, seconds=int(time.monotonic() - began) + 1))
        except (Failed, Problem, ApiError) as problem:
            raise Failed(f"{problem}\nthe same again: {command(seed, volumes)}") from problem
    except BaseException:
        # What comes next finds a whole cluster.
        world.driver.clear_faults()
        with suppress(Problem, ApiError):
            hands.restore()
        raise
    counts = ", ".join(f"{count}x {what}" for what, count in sorted(crowd.counts.items()))
    world.note(f"seed {seed}: {volumes} volumes: {counts}")
    failed = sum(not call.ok for call in made)
    world.note(f"{len(made)} CSI calls, {failed} of them without success, and nothing is left of any volume")


@dataclass
class _Going:
    """A life that has begun."""

    life: Life
    since: float
    left: list[Step] = field(init=False)
    asked: Step | None = None  # last; none when it was only begun
    claim: str = ""
    given_up: bool = False

    def __post_init__(self) -> None:
        self.left = list(self.life.steps)

    def __str__(self) -> str:
        return f"{self.life.name} after {self.asked.kind if self.asked else 'create'}"


class _Crowd:
    """The volumes that live at a time."""

    def __init__(self, hands: Hands, tell: Tell) -> None:
        self._hands = hands
        self._world = hands.world
        self._tell = tell
        self._going: dict[str, _Going] = {}
        self._faults: dict[str, Fault] = {}
        self.counts: Counter[str] = Counter()

    def act(self, plan: Iterable[Event]) -> None:
        start = time.monotonic()
        for event in plan:
            self._happen(event)
            if isinstance(event, Life):
                self._tell(f"{time.monotonic() - start:6.1f} s  {event}")
                self._until(WIDTH - 1)
            elif not isinstance(event, Forget):
                self._tell(f"{time.monotonic() - start:6.1f} s  {event}")
        self._until(0)

    def clear(self) -> None:
        """What the lives have left: snapshots, and what says that it waits for ever."""
        world = self._world
        for fault in self._faults.values():
            self.counts["fault that was met"] += fault.met
        world.driver.clear_faults()
        for kind, items in self._look().items():
            for name in items:
                self._delete(kind, name)
        until_nothing_moves(self._hands, lambda: [objects.told(item) for kind in _KINDS for item in world.every(kind)])

    # What the plan has.

    def _happen(self, event: Event) -> None:
        match event:
            case Life():
                self._begin(event)
            case Forget(snapshot):
                self._delete("Snapshot", snapshot)
            case Trouble():
                self._break(event)
            case Death(role, node):
                self.counts[f"kill of a {role}"] += 1
                self._hands.do(Action(KILL, 0, role=role, node=node))

    def _begin(self, life: Life) -> None:
        source = {"volumeName": life.of_volume} if life.of_volume else {"snapshotName": life.of_snapshot}
        from_what = source if life.of_volume or life.of_snapshot else None
        self._world.volume(life.name, capacity=f"{life.mebibytes}Mi", source=from_what, **life.kind.volume)
        self._going[life.name] = _Going(life, time.monotonic())
        self.counts["copy" if life.of_volume else "restore" if life.of_snapshot else "create"] += 1

    def _break(self, trouble: Trouble) -> None:
        driver = self._world.driver
        earlier = self._faults.pop(trouble.rpc, None)
        if earlier is not None:
            self.counts["fault that was met"] += earlier.met
            earlier.release()
        if trouble.code:
            self._faults[trouble.rpc] = driver.fail(trouble.rpc, trouble.code, trouble.when, trouble.times)
        else:
            self._faults[trouble.rpc] = driver.hang(trouble.rpc, trouble.when, trouble.seconds)
        self.counts["fault"] += 1

    # The lives.

    def _until(self, most: int) -> None:
        """Lets all of them go on until no more than so many are left."""
        while True:
            seen = self._look()
            for going in list(self._going.values()):
                self._go_on(going, seen)
            if len(self._going) <= most:
                return
            still = [going for going in self._going.values() if time.monotonic() - going.since > STILLNESS]
            found = [objects.told(item) for going in still for item in self._objects_of(going, seen)]
            expect(not still, "\n".join([f"nothing comes of {', '.join(map(str, still))}:", *found]))
            self._hands.renew_pods()
            time.sleep(0.3)

    def _look(self) -> Seen:
        """All there is. What the claims hold has to be right at any moment."""
        seen = {kind: {str(item["metadata"]["name"]): item for item in self._world.every(kind)} for kind in _KINDS}
        wrong = broken(seen["VolumeClaim"].values())
        expect(not wrong, "\n".join(wrong))
        for name, snapshot in seen["Snapshot"].items():
            # Its volume has gone before it was begun: it will never be there, and nor will what is made of it.
            if snapshot["spec"]["volumeName"] not in seen["Volume"] and not _is_going(snapshot) and not _has_begun(snapshot):
                self._delete("Snapshot", name)
        return seen

    def _go_on(self, going: _Going, seen: Seen) -> None:
        if going.asked is not None and going.asked.kind == DELETE:
            if not self._objects_of(going, seen):
                del self._going[going.life.name]
                self.counts["delete"] += 1
            return
        if self._waits_for_ever(going, seen):
            self.counts["copy that was given up"] += 1
            going.given_up, going.left = True, going.left[-1:]
        step = going.left[0]
        if step.hasty or going.given_up or self._has(going, seen):
            self._do(going, step, seen)

    def _waits_for_ever(self, going: _Going, seen: Seen) -> bool:
        """Whether it is a copy whose source is gone, or is going and is not copied any more. A snapshot may still be to come."""
        volume = seen["Volume"].get(going.life.name)
        if going.given_up or volume is None or objects.condition(volume).get("reason") != _NO_SOURCE:
            return False
        source = seen["Volume"].get(going.life.of_volume) or seen["Snapshot"].get(going.life.of_snapshot)
        if source is None and going.life.of_snapshot:
            lives = (other.left for other in self._going.values())
            return not any(step.snapshot == going.life.of_snapshot for left in lives for step in left)
        return source is None or _is_going(source)

    def _has(self, going: _Going, seen: Seen) -> bool:
        """Whether what was asked for last is there."""
        volume = seen["Volume"].get(going.life.name)
        if volume is None:
            # Made since the look.
            return False
        match going.asked:
            case None:
                return objects.is_ready(volume)
            case Step(kind=kind, mebibytes=mebibytes) if kind == EXPAND:
                return int(volume["status"].get("capacityBytes", 0)) >= mebibytes * MEBIBYTE
            case Step(kind=kind, label=label) if kind == MODIFY:
                return bool(volume["status"].get("mutableParameters") == {"label": label})
            case Step(kind=kind, snapshot=snapshot) if kind == SNAPSHOT:
                found = seen["Snapshot"].get(snapshot)
                # It may have been forgotten by now.
                return found is None or objects.is_ready(found)
            case _:
                claim = seen["VolumeClaim"].get(going.claim)
                return claim is not None and objects.is_ready(claim) if going.asked.kind == CLAIM else claim is None

    def _do(self, going: _Going, step: Step, seen: Seen) -> None:
        """Asks for the next step, unless it cannot be asked for yet."""
        world, name = self._world, going.life.name
        if step.kind in (EXPAND, MODIFY):
            volume = seen["Volume"].get(name)
            if volume is None or objects.state(volume) != "Ready":
                return
            spec = {"mutableParameters": {"label": step.label}} if step.label else {"capacity": f"{step.mebibytes}Mi"}
            world.cluster.api.patch(objects.path("Volume", world.namespace, name), {"spec": spec})
        elif step.kind == SNAPSHOT:
            world.snapshot(step.snapshot, volumeName=name)
        elif step.kind == CLAIM:
            going.claim = f"{name}-{len(going.left)}"
            world.claim(going.claim, world.cluster.node(step.node), volumeName=name, **going.life.kind.claim)
        elif step.kind == RELEASE:
            self._delete("VolumeClaim", going.claim)
        else:
            # The Volume waits for its claim.
            self._delete("Volume", name)
            if going.claim:
                self._delete("VolumeClaim", going.claim)
        going.asked, going.since = step, time.monotonic()
        going.left.pop(0)
        self.counts[step.kind] += step.kind != DELETE

    def _objects_of(self, going: _Going, seen: Seen) -> list[Object]:
        places = (("Volume", going.life.name), ("VolumeClaim", going.claim))
        return [{"kind": kind, **seen[kind][name]} for kind, name in places if name in seen[kind]]

    def _delete(self, kind: str, name: str) -> None:
        """Asks for it. It may have gone."""
        try:
            self._world.delete(kind, name)
        except ApiError as error:
            if error.status != 404:
                raise


def _is_going(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def _has_begun(snapshot: Object) -> bool:
    """Whether the driver may have it, or has been asked for it."""
    status = snapshot.get("status", {})
    return bool(status.get("snapshotHandle") or status.get("mayExist"))


def expect_balance(made: Iterable[Call]) -> None:
    """Each volume and each snapshot that the driver has been asked to use was deleted, by a call that it has answered."""
    used = {call.volume for call in made if call.rpc not in (calls.CREATE, calls.DELETE) and call.volume and call.ok}
    deleted = {call.volume for call in made if call.rpc == calls.DELETE and call.ok}
    left = sorted(used - deleted)
    expect(not left, f"the driver has never said that it has deleted {', '.join(left)}")


def expect_no_refusal(writes: Iterable[audit.Request]) -> None:
    """That somebody was faster is ordinary. All else that the API server refuses is something that moor should not have asked."""
    wrong = [write for write in writes if write.by_moor and write.code in (400, 403, 422)]
    expect(not wrong, f"the API server has refused what moor wrote: {audit.told(wrong)}")


def expect_calm(log: str) -> None:
    """That two have written one object is how writes meet, and is no warning."""
    found = [line for line in log.splitlines() if " WARN " in line and "it has changed since it was read" in line]
    expect(not found, "\n".join(["moor warns of what is ordinary:", *found[:5]]))
