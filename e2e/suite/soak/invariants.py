"""What must hold at every moment among the claims that hold volumes. Pure: one list of claims in, violations out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ..objects import Object, state

SINGLE_NODE = ("SingleNodeReader", "SingleNodeWriter", "SingleNodeSingleWriter", "SingleNodeMultiWriter")


def broken(claims: Iterable[Object]) -> list[str]:
    """A claim holds its volume while it is Ready, also when it is being deleted."""
    holders: dict[str, list[Object]] = defaultdict(list)
    for claim in claims:
        if state(claim) == "Ready":
            holders[str(claim["spec"]["volumeName"])].append(claim)
    found = []
    for volume, held in sorted(holders.items()):
        found += [f"{volume}: {what}: {', '.join(map(_told, held))}" for what in _broken(held)]
    return found


def _broken(held: list[Object]) -> Iterable[str]:
    specs = [claim["spec"] for claim in held]
    if len({(spec["accessMode"], spec["attachmentMode"]) for spec in specs}) > 1:
        yield "is used in two modes at once"
    mode = specs[0]["accessMode"]
    if mode in SINGLE_NODE and len({_node(claim) for claim in held}) > 1:
        yield "is on two nodes, in a mode for one"
    if mode == "SingleNodeSingleWriter" and len(held) > 1:
        yield "has two claims, in a mode for one"
    if mode == "MultiNodeSingleWriter" and sum(not spec.get("readOnly", False) for spec in specs) > 1:
        yield "has two writers, in a mode for one"
    paths = Counter((_node(claim), claim["status"].get("targetPath")) for claim in held)
    if any(count > 1 for count in paths.values()):
        yield "shows two claims the same path"


def _node(claim: Object) -> str:
    return str(claim["spec"].get("assignment", {}).get("nodeName", ""))


def _told(claim: Object) -> str:
    spec = claim["spec"]
    return f"{claim['metadata']['name']} on {_node(claim) or 'no node'} ({spec['accessMode']})"


def unsettled(claims: Iterable[Object]) -> list[str]:
    """Claims for which something is still to happen. What waits behind another claim has come to rest."""
    found = []
    resting: dict[str, list[Object]] = defaultdict(list)
    for claim in claims:
        name = claim["metadata"]["name"]
        if "deletionTimestamp" in claim["metadata"]:
            found.append(f"{name} is still being deleted")
        elif state(claim) not in ("Ready", "Pending", "Lost", ""):
            found.append(f"{name} is {state(claim)}")
        elif state(claim) != "Lost":
            resting[str(claim["spec"]["volumeName"])].append(claim)
    for volume, waiting in sorted(resting.items()):
        if not any(state(claim) == "Ready" for claim in waiting):
            found.append(f"nobody holds {volume}, and {len(waiting)} claims wait")
    return found
