"""What the API has of one driver's volumes. What is there before the tests is none of theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Objects = Callable[[str], list[Any]]
_NAME = re.compile(r"^DriverInfo:\n(?:[ #].*\n)*? +Name: *[\"']?([^\s\"'#]+)", re.MULTILINE)


def driver_of(definition: Path) -> str | None:
    """The driver's name as kubelets know it, by the definition file of its tests."""
    found = _NAME.search(definition.read_text())
    return found[1] if found else None


def of_driver(driver: str, objects: Objects) -> set[str]:
    """The driver's volumes and all that hangs on them, as kind and name; `objects` lists the objects of a kind."""
    return set(_found(driver, objects))


def _found(driver: str, objects: Objects) -> Iterator[str]:
    for volume in objects("persistentvolumes"):
        if volume["spec"].get("csi", {}).get("driver") == driver:
            yield _line(volume)
    plugins = {plugin["metadata"]["name"]: _own_name(plugin) for plugin in objects("plugins") if _serves(plugin, driver)}
    volumes = [volume for volume in objects("volumes") if volume["spec"]["pluginName"] in plugins]
    keys = {_key(volume, volume["metadata"]["name"]) for volume in volumes}
    yield from map(_line, volumes)
    for claim in objects("volumeclaims"):
        if _key(claim, claim["spec"]["volumeName"]) in keys:
            yield _line(claim)
    names = set(plugins.values())
    for handle in objects("volumehandles"):
        if handle["spec"]["driverName"] in names:
            yield _line(handle)
    for attachment in objects("attachments"):
        if attachment["spec"]["fixed"]["driverName"] in names:
            yield _line(attachment)


def _own_name(plugin: Any) -> str:
    """The name that the driver itself answers with."""
    return str(plugin["spec"].get("driverName") or plugin["metadata"]["name"])


def _serves(plugin: Any, driver: str) -> bool:
    """Whether kubelets know the Plugin's driver by this name."""
    return (plugin["spec"].get("kubernetes", {}).get("driverName") or _own_name(plugin)) == driver


def _key(found: Any, volume: str) -> tuple[str, str]:
    return found["metadata"]["namespace"], volume


def _line(found: Any) -> str:
    meta = found["metadata"]
    place = f"{meta['namespace']}/" if "namespace" in meta else ""
    return f"{found['kind']} {place}{meta['name']}"
