"""The tour: a StatefulSet writes to its volume, its node is drained, the next Pod reads what was written, and the volume grows.

Every command is shown.
"""

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
from .namespace import NAMESPACE
from .paths import KUBECONFIG, REPOSITORY

EXAMPLE = "examples/statefulset.yaml"
# What it names: the StatefulSet and the label of all that is its, its first Pod, and the image, which the test cluster's
# nodes cannot pull.
SET, POD, IMAGE = "ledger", "ledger-0", "busybox:1.37"
SELECTOR = f"app={SET}"
CLAIM = f"data-{POD}"
# On the test cluster. Its nodes may lack the right to make ext4 larger while it is mounted, which XFS does not ask for.
CLASS, XFS, SIZE, XFS_SIZE = "moor-loop", "examples/storageclass-xfs.yaml", "64Mi", "512Mi"
LARGER = "1Gi"
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
        self._two_nodes()
        tell("moor is installed: two controllers, of which one decides, and on every node an agent and a driver")
        self.kubectl("get", "pods", "--namespace", NAMESPACE, "-o", "wide")
        self._start()
        self._write()
        self._move()
        self._grow()
        self._delete()
        self._farewell()

    def _start(self) -> None:
        tell("A StatefulSet that asks for a volume for each of its Pods, by the StorageClass that came with the driver")
        self.kubectl("get", "storageclasses")
        self._example("apply")
        self.kubectl("rollout", "status", f"statefulset/{SET}", "--timeout=120s")
        self.kubectl("get", "pods,pvc", "--selector", SELECTOR, "-o", "wide")
        tell("What moor has made of that: a Volume for each claim, a VolumeClaim for each Pod, and an Attachment for each node")
        self.kubectl("get", "volumes,volumeclaims,attachments", "--all-namespaces")

    def _write(self) -> None:
        tell("Something is written to the first Pod's volume")
        self.kubectl("exec", POD, "--", "sh", "-c", f"echo '{WORDS}' > /data/words && sync /data/words")

    def _move(self) -> None:
        node = self._node()
        tell(f"Its node, {node}, is drained. Watch the attachment go off the driver, and another one come")
        try:
            with self._watch_attachments():
                # Of this Pod's node only what is the demo's: it may be somebody's cluster.
                self.kubectl("drain", node, "--ignore-daemonsets", f"--pod-selector={SELECTOR}", "--timeout=60s")
                self.kubectl("wait", "--for=create", f"pod/{POD}", "--timeout=60s")
                self.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=120s")
            self.kubectl("get", "pods", "--selector", SELECTOR, "-o", "wide")
            other = self._node()
            if other == node:
                raise Problem(f"{POD} is on {node} still, which was drained")
            tell(f"On {other} it finds what was written, and that it has been started twice")
            read = self.kubectl("exec", POD, "--", "cat", "/data/words", "/data/starts")
            if read.split("\n")[0] != WORDS:
                raise Problem(f"expected to read {WORDS!r} on {other}, and read {read.strip()!r}")
        finally:
            self.kubectl("uncordon", node)

    def _grow(self) -> None:
        tell("Its claim asks for more. The Pod runs on; kubelet looks at the claim about once a minute")
        patch = f'{{"spec":{{"resources":{{"requests":{{"storage":"{LARGER}"}}}}}}}}'
        self.kubectl("exec", POD, "--", "df", "-h", "/data")
        self.kubectl("patch", "pvc", CLAIM, "--patch", patch)
        until = f"--for=jsonpath={{.status.capacity.storage}}={LARGER}"
        self.kubectl("wait", until, f"pvc/{CLAIM}", "--timeout=240s")
        self.kubectl("exec", POD, "--", "df", "-h", "/data")
        self.kubectl("get", "pods,pvc", "--selector", SELECTOR)

    def _delete(self) -> None:
        tell("The StatefulSet is deleted, and with it its claims, as it says. The storage goes too")
        words = self._quiet("get", "pvc", "--selector", SELECTOR, "-o", "jsonpath={.items[*].spec.volumeName}").split()
        volumes = [f"persistentvolume/{name}" for name in words]
        self._example("delete")
        self.kubectl("wait", "--for=delete", *volumes, "--timeout=90s")
        self.kubectl("get", "pvc", "--selector", SELECTOR)
        self.kubectl("get", "volumes,volumeclaims,attachments,volumehandles", "--all-namespaces")
        if self.cluster is not None:
            tell("Nor is there a file of a volume, a mount or a loop device")
            for node in self.cluster.nodes:
                self._show_nothing_left(node.name)

    # What the tour acts on.

    def _two_nodes(self) -> None:
        names = self._quiet("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
        if len(names) < 2:
            raise Problem(f"the demo moves a volume between two nodes, and there is only {' '.join(names)}")

    def _example(self, verb: str) -> None:
        """Applies or deletes the example; on the test cluster with an image that is on its nodes."""
        if self.cluster is None:
            self.kubectl(verb, "-f", EXAMPLE)
            return
        selector = "app.kubernetes.io/component=loop-driver"
        path = "jsonpath={.items[0].spec.containers[0].image}"
        image = self._quiet("get", "pods", "--namespace", NAMESPACE, "--selector", selector, "-o", path)
        text = (REPOSITORY / EXAMPLE).read_text()
        changes = {IMAGE: image, CLASS: f"{CLASS}-xfs", SIZE: XFS_SIZE}
        for old, new in changes.items():
            text = text.replace(old, new)
        self.kubectl("apply", "-f", XFS)
        script = ";".join(f"s|{old}|{new}|" for old, new in changes.items())
        prompt(f"sed '{script}' {EXAMPLE} | kubectl {verb} -f -")
        self._show(["kubectl", verb, "-f", "-"], text)
        if verb == "delete":
            self.kubectl("delete", "-f", XFS)

    def _node(self) -> str:
        return self._quiet("get", "pod", POD, "-o", "jsonpath={.spec.nodeName}")

    def _show_nothing_left(self, node: str) -> None:
        mounts, loops = "grep kubernetes.io~csi /proc/self/mountinfo", "losetup --list | grep moor-loop"
        script = f"ls -A /var/lib/moor-loop/volumes; {mounts}; {loops}"
        if self.on_node(node, f"({script}) || true").strip():
            raise Problem(f"that is left on {node}")

    # Running and showing.

    def kubectl(self, *arguments: str) -> str:
        prompt(f"kubectl {' '.join(_quoted(word) for word in arguments)}")
        return self._show(["kubectl", *arguments], None)

    def on_node(self, node: str, script: str) -> str:
        """On a node of the test cluster."""
        assert self.cluster is not None
        pid_file = self.cluster.node(node).directory.relative_to(REPOSITORY) / "pid"
        prompt(f"nsenter -t $(cat {pid_file}) -m sh -c {_quoted(script)}")
        pid = (REPOSITORY / pid_file).read_text().strip()
        return self._show(["nsenter", "-t", pid, "-m", "sh", "-c", script], None)

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
            print("  kubectl apply -f examples/pod.yaml")
            print("  kubectl explain volumeclaim.spec")
            return
        print(f"  export KUBECONFIG={self.kubeconfig} PATH=$(make -s print-bin):$PATH")
        print("  kubectl explain volumeclaim.spec")
        print("  kubectl apply -f examples/volume.yaml -f examples/claim-node-1.yaml    # a volume without a Pod")
        print("  kubectl describe volumeclaim writer")
        print(f"  kubectl -n {NAMESPACE} delete pod --all    # the mounts stay, nothing is called again")
        print("  make down                                   # and all of it is gone")


def tell(text: str) -> None:
    print(f"\n# {text}.", flush=True)


def prompt(command: str) -> None:
    print(f"$ {command}", flush=True)


def _quoted(word: str) -> str:
    return word if all(c.isalnum() or c in "-_=/.,:+@" for c in word) else "'" + word.replace("'", "'\\''") + "'"
