"""The tour: one volume, made, written, moved to another node and read there. Every command is shown."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from . import install, parts
from .cluster import Cluster
from .messages import Problem
from .paths import KUBECONFIG, REPOSITORY

EXAMPLES = REPOSITORY / "examples"
# The names of the objects in there.
PLUGIN, VOLUME, FIRST, SECOND = "loop.moor.dev", "data", "writer", "writer-2"
WORDS = "moor kept these bytes"


def main() -> None:
    Tour().run()


class Tour:
    """Runs on the test cluster, or on the one of the user's KUBECONFIG."""

    def __init__(self) -> None:
        foreign = install.foreign_kubeconfig()
        self.cluster = Cluster.attach() if foreign is None else None
        self.kubeconfig = foreign or str(KUBECONFIG)
        parts.ensure(["kubectl"])
        path = f"{parts.folder()}:{os.environ.get('PATH', '')}"
        self.environment = {**os.environ, "KUBECONFIG": self.kubeconfig, "PATH": path}

    def run(self) -> None:
        first, second = self._two_nodes()
        tell("moor is installed: two controllers, of which one decides, and on every node an agent and a driver")
        self.kubectl("get", "pods", "--namespace", install.NAMESPACE, "-o", "wide")

        tell(f"A driver, a volume to be made, and a claim that wants it on {first}")
        self._apply("plugin.yaml", "volume.yaml", "claim-node-1.yaml")
        self._await_ready(FIRST)
        self.kubectl("wait", "--for=condition=Ready", "attachments", "--all", "--timeout=60s")
        self.kubectl("get", "plugins,volumes,volumeclaims,attachments")

        tell(f"The claim is a mount on {first}. Something is written to it there")
        target = self._target(FIRST)
        self.on_node(first, f"echo '{WORDS}' > {target}/hello && sync && findmnt {target}")

        tell("The claim is deleted. For some seconds the volume stays attached, for a claim that comes back to this node")
        self.kubectl("delete", f"volumeclaim/{FIRST}", "--timeout=60s")
        self.on_node(first, f"findmnt {target} || echo 'nothing is mounted there now'")
        self.kubectl("get", "attachments")

        tell(f"The same volume, now on {second}, which does not wait for that. Watch the attachment go off the driver, and come")
        with self._watch_attachments():
            self._apply("claim-node-2.yaml")
            self._await_ready(SECOND)
        read = self.on_node(second, f"cat {self._target(SECOND)}/hello")
        if read.strip() != WORDS:
            raise Problem(f"expected to read {WORDS!r} on {second}, and read {read.strip()!r}")

        tell(f"A second writer, on {first}: the volume allows one node, so the claim waits and says for whom")
        self._apply("claim-node-1.yaml")
        self._await_holder(FIRST)
        self.kubectl("get", "volumeclaims")
        self.kubectl(
            "get", f"volumeclaim/{FIRST}", "-o",
            "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{'\\n'}{end}",
        )  # fmt: skip

        tell("The holder goes, the waiting claim gets the volume at once")
        self.kubectl("delete", f"volumeclaim/{SECOND}", "--timeout=60s")
        self._await_ready(FIRST)
        self.on_node(first, f"cat {self._target(FIRST)}/hello")

        tell("Cleaning up: the claim, then the volume with its storage, then the driver")
        self.kubectl("delete", f"volumeclaim/{FIRST}", "--timeout=60s")
        self.kubectl("delete", f"volume/{VOLUME}", "--timeout=60s")
        self.kubectl("delete", f"plugin/{PLUGIN}", "--timeout=60s")
        self.kubectl("get", "plugins,volumes,volumeclaims,attachments,volumehandles")
        self._farewell()

    # What the tour acts on.

    def _two_nodes(self) -> tuple[str, str]:
        if self.cluster is not None:
            names = [node.name for node in self.cluster.nodes]
        else:
            names = self._quiet("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
        if len(names) < 2:
            raise Problem(f"the demo moves a volume between two nodes, and there is only {' '.join(names)}")
        return names[0], names[1]

    def _apply(self, *files: str) -> None:
        """Applies files of examples/; where the nodes have other names, with those put in."""
        paths = [EXAMPLES / name for name in files]
        text = "---\n".join(path.read_text() for path in paths)
        for example, real in zip(("node-1", "node-2"), self._two_nodes(), strict=True):
            text = text.replace(f"nodeName: {example}", f"nodeName: {real}")
        if all(path.read_text() in text for path in paths):
            words = [word for path in paths for word in ("-f", str(path.relative_to(REPOSITORY)))]
            self.kubectl("apply", *words)
        else:
            self.kubectl("apply", "-f", "-", stdin=text)

    def _await_ready(self, claim: str) -> None:
        self.kubectl("wait", "--for=condition=Ready", f"volumeclaim/{claim}", "--timeout=60s")

    def _target(self, claim: str) -> str:
        path = self._quiet("get", f"volumeclaim/{claim}", "-o", "jsonpath={.status.targetPath}")
        if not path:
            raise Problem(f"volumeclaim/{claim} is Ready but has no status.targetPath")
        return path

    def _await_holder(self, claim: str) -> None:
        deadline = time.monotonic() + 30
        while not self._quiet("get", f"volumeclaim/{claim}", "-o", "jsonpath={.status.waitingFor.holder}"):
            if time.monotonic() > deadline:
                raise Problem(f"volumeclaim/{claim} does not say what it waits for")
            time.sleep(0.2)

    # Running and showing.

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        shown = " ".join(_quoted(word) for word in arguments)
        prompt(f"kubectl {shown}" + (f" <<EOF\n{stdin}EOF" if stdin else ""))
        return self._show(["kubectl", *arguments], stdin)

    def on_node(self, node: str, script: str) -> str:
        if self.cluster is not None:
            pid_file = self.cluster.node(node).directory.relative_to(REPOSITORY) / "pid"
            prompt(f"nsenter -t $(cat {pid_file}) -m sh -c {_quoted(script)}")
            pid = (REPOSITORY / pid_file).read_text().strip()
            return self._show(["nsenter", "-t", pid, "-m", "sh", "-c", script])
        agent = self._quiet(
            "get", "pods", "--namespace", install.NAMESPACE, "--selector", "app.kubernetes.io/component=agent",
            "--field-selector", f"spec.nodeName={node}", "-o", "name",
        ).strip()  # fmt: skip
        return self.kubectl("exec", "--namespace", install.NAMESPACE, agent, "-c", "agent", "--", "sh", "-c", script)

    @contextmanager
    def _watch_attachments(self) -> Iterator[None]:
        command = ["kubectl", "get", "attachments", "--watch"]
        prompt(f"{' '.join(command)} &")
        watch = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert watch.stdout is not None
        lines = watch.stdout
        printing = threading.Thread(target=lambda: [print(line, end="", flush=True) for line in lines])
        printing.start()
        # Its first line shows the state before anything changes.
        time.sleep(0.7)
        try:
            yield
            time.sleep(0.5)
        finally:
            watch.terminate()
            watch.wait()
            printing.join()

    def _show(self, command: list[str], stdin: str | None = None) -> str:
        done = self._call(command, stdin, self.environment)
        print(done.stdout, end="" if done.stdout.endswith("\n") or not done.stdout else "\n", flush=True)
        if done.returncode != 0:
            raise Problem(f"that failed with exit code {done.returncode}: {done.stderr.strip()}")
        if done.stderr:
            print(done.stderr, end="", flush=True)
        return done.stdout

    def _quiet(self, *arguments: str) -> str:
        done = self._call(["kubectl", *arguments], None, self.environment)
        if done.returncode != 0:
            raise Problem(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    @staticmethod
    def _call(command: list[str], stdin: str | None, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, env=env, cwd=REPOSITORY, check=False
        )

    def _farewell(self) -> None:
        tell("That was moor. Try next")
        if self.cluster is None:
            print("  kubectl explain volumeclaim.spec")
            print("  kubectl apply -f examples/plugin.yaml -f examples/volume.yaml")
            return
        print(f"  export KUBECONFIG={self.kubeconfig} PATH=$(make -s print-bin):$PATH")
        print("  kubectl explain volumeclaim.spec")
        print("  kubectl apply -f examples/plugin.yaml -f examples/volume.yaml -f examples/claim-node-1.yaml")
        print(f"  kubectl -n {install.NAMESPACE} delete pod --all    # the mounts stay, nothing is called again")
        print("  make down                                   # and all of it is gone")


def tell(text: str) -> None:
    print(f"\n# {text}.", flush=True)


def prompt(command: str) -> None:
    print(f"$ {command}", flush=True)


def _quoted(word: str) -> str:
    return word if all(c.isalnum() or c in "-_=/.,:+@" for c in word) else "'" + word.replace("'", "'\\''") + "'"
