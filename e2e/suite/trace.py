"""Whether recorded CSI calls obey CSI's order. Pure: calls in, violations out.

What the orchestrator may know is followed call by call. An outcome that it cannot know (an error, a killed
driver, a call whose caller was killed) is "perhaps", and has to be repeated or reversed before anything else.
Only a NodeStageVolume that the driver has refused for certain counts as not done, as Kubernetes' own tests have
it: it may be given up, and must not be unstaged.

A lock may be closed before its volume is attached. Nothing that outlives a process says of it whether the call was made, so
that ControllerUnpublishVolume is called then, once for each lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from .calls import ATTACH, CREATE, DELETE, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, WHO, Call

# The strict driver's words for "out of order" and "not the same arguments".
REFUSALS = frozenset({"FailedPrecondition", "AlreadyExists", "InvalidArgument", "NotFound", "OutOfRange"})

# After these nobody knows whether the driver is still at work; after others it is not.
UNKNOWN_OUTCOME = frozenset({"Cancelled", "DeadlineExceeded", "Unavailable", "Aborted", "ResourceExhausted"})

NO, PERHAPS, YES = "no", "perhaps", "yes"

# Kills of a whole node. After a reboot no mount of it is there: what was done is uncertain until it is repeated or
# undone. A node that was declared lost may be detached as it is (rule R4), and undoes its part when it is back.
REBOOT, LOST = "reboot", "lost"
# An agent that was told to end, and has heard its last answers before. What the disk is not told of them, the next one asks again.
ROLLED = "rolled"


@dataclass(frozen=True)
class Kill:
    """A moor process that the scenario ended or froze. Its call, or the call it waited for, is in the air.

    With the role `REBOOT` or `LOST` it is about the node itself, with a volume about that one on the node. With `ROLLED` it
    is about the node's agent, and `at` is before it was told.
    """

    at: int  # milliseconds since 1970
    role: str  # controller, agent or loop-driver, or REBOOT, LOST, ROLLED
    node: str
    volume: str = ""


@dataclass(frozen=True)
class Lock:
    """The right to attach a volume to a node, which was given then."""

    at: int  # milliseconds since 1970
    volume: str
    node: str  # as the driver knows it


@dataclass
class _Step:
    """Something that one call does and another undoes."""

    state: str = NO
    last: Call | None = None  # the last call that did it
    owed: Call | None = None  # the call whose outcome is not known
    succeeded: bool = False  # since it was last undone
    undone_at: int = 0  # when that was last begun


@dataclass
class _Place:
    """One volume on one node."""

    attached: _Step = field(default_factory=_Step)
    staged: _Step = field(default_factory=_Step)
    targets: dict[str, _Step] = field(default_factory=dict)
    lost: bool = False  # what it holds is out of the way, and still to be undone

    @property
    def clean(self) -> bool:
        """Nothing is left to be undone on the node."""
        return self.staged.state == NO and not self.live_targets()

    def reboot(self) -> None:
        for step in (self.staged, *self.targets.values()):
            step.succeeded = False
            if step.state == YES:
                step.state = PERHAPS

    def live_targets(self) -> list[str]:
        return sorted(target for target, step in self.targets.items() if step.state != NO)


class _Checker:
    def __init__(self, kills: Sequence[Kill], locks: Collection[Lock], tolerated: Collection[str]) -> None:
        self.kills = kills
        self.locks = locks
        self.last_words: dict[Kill, int] = {}
        self.tolerated = tolerated
        self.violations: list[str] = []
        self.places: dict[tuple[str, str], _Place] = {}
        self.deleted: set[str] = set()
        self.flying: dict[int, Call] = {}
        self.of_nodes = [kill for kill in kills if kill.role in (REBOOT, LOST)]

    def run(self, calls: Sequence[Call]) -> None:
        self.last_words = {kill: _last_words(kill, calls) for kill in self.kills}
        begun = [(call.seq, True, call) for call in calls]
        ended = [(call.end_seq, False, call) for call in calls if call.end_seq is not None]
        for _, begins, call in sorted(begun + ended, key=lambda event: event[0]):
            if begins:
                self._bury(call.at)
                self._tell_nodes(call.at)
                self._begin(call)
            elif call.seq in self.flying:
                del self.flying[call.seq]
                self._end(call)

    def blame(self, call: Call, what: str) -> None:
        self.violations.append(f"{call}: {what}")

    # Kills.

    def _bury(self, now: int) -> None:
        """Calls that a killed driver never ended."""
        for call in list(self.flying.values()):
            if call.end_seq is None and self._killed("loop-driver", call.server, call.at, now):
                del self.flying[call.seq]

    def _tell_nodes(self, now: int) -> None:
        """What became of whole nodes until now."""
        while self.of_nodes and self.of_nodes[0].at <= now:
            kill = self.of_nodes.pop(0)
            for (volume, node), place in self.places.items():
                if node != kill.node or kill.volume not in ("", volume):
                    continue
                if kill.role == REBOOT:
                    place.reboot()
                else:
                    place.lost = place.attached.state != NO or not place.clean

    def _killed(self, role: str, node: str, since: int, until: int) -> bool:
        mine = (kill for kill in self.kills if (kill.role, kill.node) == (role, node))
        return any(self._within(kill, since, until) for kill in mine)

    def _within(self, kill: Kill, since: int, until: int) -> bool:
        return kill.at <= until and since <= self.last_words[kill]

    def _orphaned(self, call: Call, until: int) -> bool:
        """Whether its caller, the agent beside the driver, has been killed meanwhile."""
        return self._killed("agent", call.server, call.at, until)

    def _may_repeat(self, call: Call, last: Call | None) -> bool:
        """A repeated success is forgiven when something was killed since the first began."""
        since = 0 if last is None else last.at
        return any(self._within(kill, since, call.at) for kill in self.kills)

    # Begin and end.

    def _place(self, call: Call) -> _Place:
        return self.places.setdefault((call.volume, call.place), _Place())

    def _begin(self, call: Call) -> None:
        for other in self.flying.values():
            if _lane(other) == _lane(call) and not self._orphaned(other, call.at):
                self.blame(call, f"began while {other} was in flight")
        self.flying[call.seq] = call
        # A lost node undoes its part when it is back, and by then its volume may be gone.
        cleans = call.rpc in (UNPUBLISH, UNSTAGE) and self._place(call).lost
        if call.volume in self.deleted and call.rpc != DELETE and not cleans:
            self.blame(call, "the volume has been deleted")
        steps = {
            ATTACH: self._attach,
            STAGE: self._stage,
            PUBLISH: self._publish,
            UNPUBLISH: self._unpublish,
            UNSTAGE: self._unstage,
            DETACH: self._detach,
            DELETE: self._delete,
        }
        if call.rpc in steps:
            steps[call.rpc](call)

    def _attach(self, call: Call) -> None:
        self._do(call, self._place(call).attached)

    def _stage(self, call: Call) -> None:
        place = self._place(call)
        self._require(call, place.attached, ATTACH)
        if place.staged.state != NO:
            self._same_staging(call, place)
        self._do(call, place.staged)

    def _publish(self, call: Call) -> None:
        place = self._place(call)
        self._require(call, place.staged, STAGE)
        self._same_staging(call, place)
        self._do(call, place.targets.setdefault(call.target, _Step()))

    def _unpublish(self, call: Call) -> None:
        self._undo(call, self._place(call).targets.setdefault(call.target, _Step()))

    def _unstage(self, call: Call) -> None:
        place = self._place(call)
        self._require_unpublished(call, place)
        self._same_staging(call, place)
        self._undo(call, place.staged)

    def _detach(self, call: Call) -> None:
        for node, place in self._places_of(call):
            if place.lost:
                continue
            if place.staged.state != NO:
                self.blame(call, f"came before {UNSTAGE} on {node} had succeeded")
            self._require_unpublished(call, place)
        self._undo(call, self._place(call).attached)

    def _delete(self, call: Call) -> None:
        for (volume, node), place in self.places.items():
            held = place.attached.state != NO or (place.staged.state != NO and not place.lost)
            if volume == call.volume and held:
                self.blame(call, f"came while the volume was still on {node}")
        if call.volume in self.deleted and not self._may_repeat(call, None):
            self.blame(call, "the volume has been deleted already")

    def _places_of(self, call: Call) -> list[tuple[str, _Place]]:
        """The places that ControllerUnpublishVolume means: without a node, all."""
        every = list(self.places.items())
        return [(node, place) for (volume, node), place in every if volume == call.volume and call.node in ("", node)]

    def _require_unpublished(self, call: Call, place: _Place) -> None:
        for target in place.live_targets():
            self.blame(call, f"came before {UNPUBLISH} of {target} had succeeded")

    def _same_staging(self, call: Call, place: _Place) -> None:
        staged = place.staged.last
        if staged is not None and staged.staging != call.staging:
            self.blame(call, f"names the staging path {call.staging!r}, and {staged} was at {staged.staging!r}")

    def _require(self, call: Call, step: _Step, rpc: str) -> None:
        if step.state == NO:
            self.blame(call, f"came before {rpc}")
        elif step.state == PERHAPS:
            self.blame(call, f"came before {rpc} had succeeded")

    def _do(self, call: Call, step: _Step) -> None:
        if step.owed is not None:
            self._answer(call, step.owed)
        elif step.state == YES and not self._may_repeat(call, step.last):
            self.blame(call, f"repeats {step.last}, which had succeeded, and nothing was killed since")
        step.state, step.owed, step.last = PERHAPS, call, call

    def _answer(self, call: Call, owed: Call) -> None:
        """After a call of unknown outcome: the identical call, or its inverse."""
        if call.rpc != owed.rpc:
            self.blame(call, f"came before {owed} was undone for certain")
        elif call.arguments != owed.arguments:
            self.blame(call, f"repeats {owed} with other arguments: {_differences(owed, call)}")

    def _undo(self, call: Call, step: _Step) -> None:
        is_needless = step.state == NO and step.owed is None and not self._was_locked(call, step.undone_at)
        if is_needless and not self._may_repeat(call, None):
            self.blame(call, "undoes what was never done, or was undone already")
        step.state, step.owed, step.undone_at = PERHAPS, call, call.at

    def _was_locked(self, call: Call, since: int) -> bool:
        """Whether it detaches what may have been attached, for all that is written down."""
        mine = (lock for lock in self.locks if (lock.volume, lock.node) == (call.volume, call.node))
        return call.rpc == DETACH and any(since < lock.at <= call.at for lock in mine)

    def _end(self, call: Call) -> None:
        if call.code in REFUSALS and call.code not in self.tolerated:
            self.blame(call, f"was refused with {call.code}")
        # Nobody was there to hear the answer; who comes next has to ask again.
        if call.end_at is not None and self._orphaned(call, call.end_at):
            return
        place = self._place(call)
        if not call.ok:
            if call.rpc == STAGE and call.code not in UNKNOWN_OUTCOME and not place.staged.succeeded:
                _succeed(place.staged, call, NO)
            return
        if call.rpc == ATTACH:
            # A lost node that has cleaned up is like any other.
            place.lost = place.lost and not place.clean
            _succeed(place.attached, call, YES)
        elif call.rpc == STAGE:
            _succeed(place.staged, call, YES)
        elif call.rpc == PUBLISH:
            _succeed(place.targets[call.target], call, YES)
        elif call.rpc == UNPUBLISH:
            _succeed(place.targets[call.target], call, NO)
        elif call.rpc == UNSTAGE:
            _succeed(place.staged, call, NO)
        elif call.rpc == DETACH:
            for _, detached in self._places_of(call):
                _succeed(detached.attached, call, NO)
        elif call.rpc == DELETE:
            self.deleted.add(call.volume)

    def finish(self) -> None:
        # A driver that is told to end may just then be asked how it does.
        for call in (flying for flying in self.flying.values() if flying.volume or flying.name):
            if not any(kill.role == "loop-driver" and kill.node == call.server for kill in self.kills):
                self.blame(call, "never ended")
        for (volume, node), place in self.places.items():
            for target in place.live_targets():
                self.violations.append(f"{volume} on {node} is left published at {target}")
            if place.staged.state != NO:
                self.violations.append(f"{volume} on {node} is left staged ({place.staged.state})")
            if place.attached.state != NO:
                self.violations.append(f"{volume} on {node} is left attached ({place.attached.state})")


def _last_words(kill: Kill, calls: Sequence[Call]) -> int:
    """When a call of a killed process may have begun at the latest.

    What a killed agent had sent its driver reads when it gets around to it. The next agent asks the driver who it is
    before all else, so what begins before that question is not its own.
    """
    if kill.role not in ("agent", ROLLED):
        return kill.at
    asked = (call.at for call in calls if (call.rpc, call.server) == (WHO, kill.node) and call.at >= kill.at)
    return min(asked, default=kill.at)


def _succeed(step: _Step, call: Call, state: str) -> None:
    """A late answer to an earlier call says nothing about the one that is owed now."""
    if step.owed is None or step.owed.rpc == call.rpc:
        step.state, step.owed = state, None
        step.last = call if state == YES else None
        step.succeeded = state == YES


def _lane(call: Call) -> tuple[str, str]:
    """Calls of one lane may not overlap: one per volume, and one per volume and node on the nodes."""
    if call.rpc == CREATE:
        return ("name " + call.name, "")
    return (call.volume, call.server if call.on_node else "") if call.volume else (f"#{call.seq}", "")


def _differences(one: Call, other: Call) -> str:
    names = ("rpc", "volume", "name", "node", "stagingPath", "targetPath", "readonly")
    pairs = zip(names, one.arguments, other.arguments, strict=True)
    return ", ".join(f"{name} {before!r} then {after!r}" for name, before, after in pairs if before != after)


def check(
    calls: Iterable[Call],
    kills: Iterable[Kill] = (),
    *,
    locks: Iterable[Lock] = (),
    tolerated: Collection[str] = (),
    finished: bool = True,
) -> list[str]:
    """What is wrong with these calls. They start where nothing is attached. `locks` are those that were given meanwhile.

    `tolerated` are codes that a scenario provokes. `finished`: all volumes have to be off all nodes at the end.
    """
    checker = _Checker(sorted(kills, key=lambda kill: kill.at), list(locks), tolerated)
    checker.run(sorted(calls, key=lambda call: call.seq))
    if finished:
        checker.finish()
    return checker.violations
