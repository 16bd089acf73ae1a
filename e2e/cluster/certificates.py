"""The cluster's identities: certificates, service account keys and kubeconfig files."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from . import parts
from .commands import run
from .network import Network
from .paths import KUBECONFIG, STATE

FOLDER = STATE / "certificates"


@dataclass(frozen=True)
class Identity:
    """Who a program is to the API server, and under which names it serves."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def certificate(self) -> Path:
        return FOLDER / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return FOLDER / f"{self.name}.key"

    @property
    def kubeconfig(self) -> Path:
        return FOLDER / f"{self.name}.kubeconfig"


ADMIN = Identity("admin", "moor-e2e-admin", ("system:masters",))
CONTROLLER_MANAGER = Identity("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER = Identity("kube-scheduler", "system:kube-scheduler")
# How the API server calls kubelets, for logs and exec.
KUBELET_CLIENT = Identity("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",))
API_SERVER = "kube-apiserver"
AUTHORITY = FOLDER / "ca.crt"
SERVICE_ACCOUNT_KEY = FOLDER / "service-accounts.key"
SERVICE_ACCOUNT_PUBLIC = FOLDER / "service-accounts.pub"


def node_identity(name: str, address: str) -> Identity:
    return Identity(name, f"system:node:{name}", ("system:nodes",), (name, address, "127.0.0.1"))


def api_identity(network: Network) -> Identity:
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    return Identity(API_SERVER, API_SERVER, (), (*names, "localhost", "127.0.0.1", network.api, network.control))


def create(network: Network, nodes: int) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    clients = [ADMIN, CONTROLLER_MANAGER, SCHEDULER]
    clients += [node_identity(f"node-{number}", network.node(number)) for number in range(1, nodes + 1)]
    every = [*clients, KUBELET_CLIENT, api_identity(network)]
    specification = {
        "directory": str(FOLDER),
        "certificates": [
            {
                "name": identity.name,
                "commonName": identity.user,
                "organizations": list(identity.groups),
                "hosts": list(identity.hosts),
            }
            for identity in every
        ],
        "signingKeys": [SERVICE_ACCOUNT_KEY.stem],
    }
    run([parts.program("certificates")], stdin=json.dumps(specification))
    for identity in clients:
        _write_kubeconfig(identity, network, identity.kubeconfig)
    _write_kubeconfig(ADMIN, network, KUBECONFIG)


def _write_kubeconfig(identity: Identity, network: Network, path: Path) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "moor-e2e",
                "cluster": {"server": f"https://{network.api}:443", "certificate-authority-data": _encoded(AUTHORITY)},
            }
        ],
        "users": [
            {
                "name": identity.name,
                "user": {
                    "client-certificate-data": _encoded(identity.certificate),
                    "client-key-data": _encoded(identity.key),
                },
            }
        ],
        "contexts": [{"name": "moor-e2e", "context": {"cluster": "moor-e2e", "user": identity.name}}],
        "current-context": "moor-e2e",
    }
    path.touch(mode=0o600)
    # JSON is YAML, and the standard library writes it.
    path.write_text(json.dumps(content, indent=1) + "\n")


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
