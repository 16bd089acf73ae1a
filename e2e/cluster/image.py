"""Container images without a container engine: archives in the form that `docker save` writes."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from . import packages, parts, paths
from .commands import run
from .messages import Problem, step
from .paths import IMAGES, cache

REPOSITORY = "moor.dev/moor"
LOOP_DRIVER = "moor.dev/moor-loop-driver"
PAUSE = "moor.dev/pause:1"

_SUITE = "bookworm"
# What a driver in this image needs to make, check and mount file systems, and a database for the suite's Pods, which run it
# too.
_PACKAGES = ("e2fsprogs", "xfsprogs", "util-linux", "mount", "kmod", "sqlite3")
# What of it is not in the image of controller and agents, which call no program: what the Dockerfile takes away.
_TOOLS = tuple(re.findall(r" /usr/s?bin/(\S+)", (paths.REPOSITORY / "Dockerfile").read_text()))
# Where a shell is looked for in the images of the storage tests, and which one is there.
_SHELL = ("usr/bin/sh", "bash")
_SUPERFLUOUS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
)


class Loads(Protocol):
    """What an image is loaded into."""

    def has_image(self, reference: str) -> bool: ...
    def ctr(self, *arguments: str | Path) -> object: ...


@dataclass(frozen=True)
class Image:
    """An archive on disk and the name it is loaded under, and the names of others that are in it."""

    reference: str
    archive: Path
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Layer:
    path: Path
    digest: str


@dataclass(frozen=True)
class _Entry:
    """One image of an archive."""

    references: list[str]
    layers: list[_Layer]
    entrypoint: list[str]
    arguments: list[str] = field(default_factory=list)


def pause() -> Image:
    """Holds a Pod's namespaces; nothing but one static program."""
    image = Image(PAUSE, IMAGES / "pause.tar")
    if not image.archive.exists():
        layer = _program_layer(parts.program("pause"), "pause")
        _write(image, [_Entry([PAUSE], [layer], ["/pause"])])
    return image


def moor(binary: Path) -> Image:
    """The program on a Debian base, tagged by its content so that a new build rolls out: once as controller and agents have it, and
    once as the loop driver does. One archive, since nearly all of it is the layers that they share."""
    recipe = repr((hashlib.sha256(binary.read_bytes()).hexdigest(), _PACKAGES, _TOOLS))
    tag = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    image = Image(f"{REPOSITORY}:{tag}", IMAGES / f"moor-{tag}.tar", (f"{LOOP_DRIVER}:{tag}",))
    if not image.archive.exists():
        base, program = _base_layer(), _program_layer(binary, "usr/local/bin/moor")
        if image.archive.parent.exists():
            for stale in image.archive.parent.glob("moor-*.tar"):
                stale.unlink()
        entrypoint = ["/usr/local/bin/moor"]
        entries = [
            _Entry([image.reference], [base, _removing_layer(base, _TOOLS), program], entrypoint),
            _Entry([*image.others], [base, program], entrypoint),
        ]
        _write(image, entries)
    return image


def storage_tests(shells: list[str], agnhosts: list[str]) -> Image:
    """What the Pods of Kubernetes' storage tests run: of most images they want a shell and Debian's tools, and of agnhost
    its program beside them. One archive, since nearly all of it is the layer that they share.

    Their shell is bash: volumeIO counts with `let`, which busybox has and Debian's own sh has not, and it would never end.
    """
    agnhost = parts.program("agnhost")
    recipe = repr((shells, agnhosts, hashlib.sha256(agnhost.read_bytes()).hexdigest(), _SHELL))
    archive = IMAGES / f"storage-tests-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    reference, *others = [*shells, *agnhosts]
    image = Image(reference, archive, tuple(others))
    if not image.archive.exists():
        base, shell, program = _base_layer(), _link_layer(*_SHELL), _program_layer(agnhost, "agnhost")
        entry = _Entry(shells, [base, shell], [])
        _write(image, [entry, _Entry(agnhosts, [base, shell, program], ["/agnhost"], ["pause"])])
    return image


def load(node: Loads, image: Image) -> None:
    if not all(node.has_image(reference) for reference in (image.reference, *image.others)):
        node.ctr("images", "import", image.archive)


def load_all(nodes: list[Loads], image: Image) -> None:
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        for done in [pool.submit(load, node, image) for node in nodes]:
            done.result()


def _base_layer() -> _Layer:
    """A minimal Debian with the file system tools, made once and kept outside the checkout."""
    recipe = hashlib.sha256(repr((_SUITE, _PACKAGES, _SUPERFLUOUS, platform.machine())).encode()).hexdigest()[:12]
    folder = cache() / f"image-{recipe}"
    layer, digest = folder / "base.tar", folder / "base.sha256"
    if not digest.exists():
        packages.ensure()
        root = folder / "root"
        _remove_root(root)
        root.mkdir(parents=True)
        with step(f"Debian {_SUITE} root file system for the image, about 1 min the first time"):
            run(["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, root], timeout=1200)
            for name in _SUPERFLUOUS:
                for entry in (root / name).glob("*"):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            # Devices are the container runtime's business.
            run(["tar", "--sort=name", "--numeric-owner", "--exclude=./dev/*", "-C", root, "-cf", layer, "."])
            _remove_root(root)
        digest.write_text(_sha256(layer))
    return _Layer(layer, digest.read_text().strip())


def _remove_root(root: Path) -> None:
    """An interrupted debootstrap leaves /proc mounted in its target."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        point = Path(line.split()[4])
        if point.is_relative_to(root):
            run(["umount", "--lazy", point])
    if root.exists():
        shutil.rmtree(root)


def _program_layer(program: Path, target: str) -> _Layer:
    folder = IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"layer-{program.name}.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(target)
        entry.size = program.stat().st_size
        entry.mode = 0o755
        with program.open("rb") as content:
            archive.addfile(entry, content)
    return _Layer(path, _sha256(path))


def _removing_layer(below: _Layer, names: tuple[str, ...]) -> _Layer:
    """Takes the programs of these names away from a layer below."""
    path = IMAGES / "layer-without-tools.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(below.path) as archive:
        entries = [Path(entry.name) for entry in archive if entry.isfile() or entry.issym() or entry.islnk()]
    programs = [entry for entry in entries if entry.parent.name in ("bin", "sbin")]
    removed = sorted(entry for entry in programs if any(entry.match(name) for name in names))
    if not removed:
        raise Problem(f"the base of the image has none of {', '.join(names)}")
    with tarfile.open(path, "w") as archive:
        for entry in removed:
            # As image layers say that something below is not there.
            archive.addfile(tarfile.TarInfo(str(entry.parent / f".wh.{entry.name}")))
    return _Layer(path, _sha256(path))


def _link_layer(target: str, to: str) -> _Layer:
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = IMAGES / f"layer-{Path(target).name}-{to}.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(target)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, to, 0o777
        archive.addfile(entry)
    return _Layer(path, _sha256(path))


def _write(image: Image, entries: list[_Entry]) -> None:
    configs = {f"{hashlib.sha256(config).hexdigest()}.json": config for config in map(_config, entries)}
    manifest = [
        {"Config": name, "RepoTags": entry.references, "Layers": [f"{layer.digest}.tar" for layer in entry.layers]}
        for name, entry in zip(configs, entries, strict=True)
    ]
    layers = {f"{layer.digest}.tar": layer.path for entry in entries for layer in entry.layers}
    temporary = image.archive.with_suffix(".new")
    with tarfile.open(temporary, "w") as archive:
        for filename, path in layers.items():
            archive.add(path, filename)
        for filename, content in (*configs.items(), ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(filename)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    temporary.rename(image.archive)


def _config(entry: _Entry) -> bytes:
    return json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Entrypoint": entry.entrypoint,
                "Cmd": entry.arguments,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in entry.layers]},
            "history": [{"created_by": "moor e2e"} for _ in entry.layers],
        },
        sort_keys=True,
    ).encode()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
