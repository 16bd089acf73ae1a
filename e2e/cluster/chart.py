"""The chart's own check: every value does what it says, is described, and is listed in the chart's README."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import parts
from .chart_cases import CASES, FAILING, KINDS, REFUSED
from .chart_expected import Case, Seen
from .commands import run
from .messages import Problem, say
from .namespace import NAMESPACE
from .paths import REPOSITORY

RELEASE = "moor"
CHART = REPOSITORY / "charts" / "moor"
README = CHART / "README.md"

# Taken over into an object as they are, so what is in them is no value of its own.
_WHOLE = {"affinity", "dnsConfig", "resources"}
_TABLE = ("<!-- values: rewrite with UPDATE_VALUES=1 python3 -m e2e.cluster check-chart -->\n", "<!-- end of values -->\n")
_OWN_LABEL = "helm.sh/chart"


def check() -> None:
    """Lint, and render with each value alone."""
    if not (CHART / "Chart.yaml").exists():
        say("there is no chart yet: nothing to lint")
        return
    parts.ensure(["helm", "kubectl"])
    for values in ({}, {"loopDriver.enabled": True}, _EVERYTHING):
        run([parts.program("helm"), "lint", "--strict", CHART, "--values", "-"], stdin=_document(values))
    schema = json.loads((CHART / "values.schema.json").read_text())
    leaves = list(_leaves(schema, schema["properties"]))
    wrong = [
        *_uncovered(leaves), *_without_effect(), *_not_refused(), *_unlabelled(),
        *_changed_definitions(), *_unlisted(leaves),
    ]  # fmt: skip
    if wrong:
        raise Problem("the chart is not as it should be:\n" + "\n".join(wrong))
    say(f"chart: lint and template are clean, and {len(CASES)} values have their effect")


_EVERYTHING: Mapping[str, object] = {
    "adminHost": "0.0.0.0",
    "loopDriver.enabled": True,
    "controller.networkPolicy.enabled": True,
    "monitoring.dashboard.enabled": True,
    "monitoring.serviceMonitor.enabled": True,
    "monitoring.podMonitor.enabled": True,
    "monitoring.podMonitor.controller": True,
    "monitoring.prometheusRule.enabled": True,
    "rbac.aggregateToUserRoles": True,
}


def _document(values: Mapping[str, object]) -> str:
    """The values of a release, of dotted paths."""
    document: dict[str, Any] = {}
    for path, value in values.items():
        *outer, last = path.split(".")
        place = document
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = value
    return json.dumps(document)


def _render(values: Mapping[str, object]) -> str:
    """Raises a Problem if the chart does not take the values."""
    command = [parts.program("helm"), "template", RELEASE, CHART, "--namespace", NAMESPACE, "--values", "-"]
    return run(command, stdin=_document(values)).stdout


def _objects_of(texts: Sequence[str]) -> list[dict[str, Seen]]:
    """The objects of each text, by kind and name. Python reads no YAML, so kubectl does, all of it at once."""
    mark = "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: end-of-text }\n---\n"
    command = [parts.program("kubectl"), "patch", "--local", "--filename", "-", "--type", "merge", "--patch", "{}"]
    printed = run([*command, "--output", "json"], stdin="".join(text + mark for text in texts)).stdout
    decoder, found, objects = json.JSONDecoder(), [], dict[str, Seen]()
    end = 0
    while (start := printed.find("{", end)) >= 0:
        item, end = decoder.raw_decode(printed, start)
        name = f"{item['kind']}/{item['metadata']['name']}"
        if name == "ConfigMap/end-of-text":
            found.append(objects)
            objects = {}
        else:
            objects[name] = item
    return found


def _leaves(schema: Any, properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The dotted path of each value, and what the schema says of it."""
    for name, value in properties.items():
        definition = value.get("$ref", "").rpartition("/")[2]
        of = {**schema["$defs"].get(definition, {}), **value}
        if "properties" in of and name not in _WHOLE:
            yield from _leaves(schema, of["properties"], f"{prefix}{name}.")
        elif name != "global":
            yield prefix + name, of["description"]


def _uncovered(leaves: Sequence[tuple[str, str]]) -> Iterator[str]:
    cases = {case.path for case in CASES}
    for path in sorted({path for path, _ in leaves} ^ cases):
        yield f"{path}: " + ("there is no such value" if path in cases else "no case says what it has to do")


def _with_value(case: Case) -> Mapping[str, object]:
    return {**case.given, case.path: case.value}


def _without_effect() -> Iterator[str]:
    """What a case expects is there with its value, and was not without it."""
    sets = {_document(values): values for case in CASES for values in (case.given, _with_value(case))}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rendered = dict(zip(sets, _objects_of(list(pool.map(_render, sets.values()))), strict=True))
    for case in CASES:
        after, before = rendered[_document(_with_value(case))], rendered[_document(case.given)]
        missing = [line for expected in case.expected if (line := expected.missing_in(after))]
        yield from (f"{case.path}={case.value!r}: {line}" for line in missing)
        if not missing and not any(expected.missing_in(before) for expected in case.expected):
            yield f"{case.path}={case.value!r}: nothing shows that it has an effect, for all is the same without it"


def _not_refused() -> Iterator[str]:
    for values, words in [*((values, "") for values in REFUSED), *FAILING]:
        try:
            _render(values)
        except Problem as problem:
            if words not in str(problem):
                yield f"{dict(values)} is refused with other words than {words!r}: {problem}"
        else:
            yield f"the chart takes {dict(values)}, which it is to refuse"


def _unlabelled() -> Iterator[str]:
    """Objects and Pods have the common labels, and no selector has. Pods are kept to Linux and have a security context."""
    values = {**_EVERYTHING, "commonLabels": {"team": "storage"}}
    (objects,) = _objects_of([_render(values)])
    kinds = {name.partition("/")[0] for name in objects}
    yield from (f"no object of the kind {kind} is rendered" for kind in KINDS - kinds)
    for name, item in objects.items():
        templates = [item["spec"]["template"]] if "template" in item.get("spec", {}) else []
        pods = [item] if item["kind"] == "Pod" else templates
        for place in [item, *templates]:
            labels = place["metadata"].get("labels", {})
            if labels.get("team") != "storage" or _OWN_LABEL not in labels:
                yield f"{name} lacks labels: {labels}"
        selector = item.get("spec", {}).get("selector", {}) if isinstance(item.get("spec"), dict) else {}
        if "team" in json.dumps(selector):
            yield f"the selector of {name} has a common label"
        for pod in pods:
            spec = pod["spec"]
            if spec.get("nodeSelector") != {"kubernetes.io/os": "linux"}:
                yield f"{name} is not kept to Linux nodes"
            yield from (
                f"{name} has a container without a security context"
                for container in spec["containers"]
                if not {"readOnlyRootFilesystem", "runAsUser"} <= container.get("securityContext", {}).keys()
            )


def _changed_definitions() -> Iterator[str]:
    """What the chart adds to the definitions are labels."""
    sources = sorted((REPOSITORY / "crds").glob("*.yaml"))
    there, installed = _objects_of(["\n---\n".join(path.read_text() for path in sources), _render({})])
    for name, item in there.items():
        other = installed.get(name, {"metadata": {}})
        other["metadata"].pop("labels", None)
        if other != item:
            yield f"{name} is installed otherwise than crds/ has it"


def _unlisted(leaves: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The README lists each value with its default."""
    begin, end = _TABLE
    text = README.read_text()
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    table = begin + "".join(_rows(leaves)) + end
    if os.environ.get("UPDATE_VALUES"):
        README.write_text(before + table + after)
    elif before + table + after != text:
        yield "the table of values in the chart's README.md is not current: rewrite it with UPDATE_VALUES=1"


def _rows(leaves: Sequence[tuple[str, str]]) -> Iterator[str]:
    values = (CHART / "values.yaml").read_text().replace("\n", "\n  ")
    wrapped = f"apiVersion: v1\nkind: Values\nmetadata: {{ name: values }}\nvalues:\n  {values}\n"
    (objects,) = _objects_of([wrapped])
    yield "| value | default | |\n|---|---|---|\n"
    for path, description in leaves:
        default: Any = objects["Values/values"]["values"]
        for name in path.split("."):
            if name not in default:
                raise Problem(f"{path} is in values.schema.json and has no default in values.yaml")
            default = default[name]
        shown = json.dumps(default) if not isinstance(default, str) else default
        cell = f"`{shown}`" if shown not in ("", "{}", "[]") else "empty"
        yield f"| `{path}` | {cell} | {description.replace('|', '/')} |\n"
