"""etcd, API server, controller manager and scheduler, as processes in one network namespace."""

from __future__ import annotations

import json
from pathlib import Path

from . import certificates, parts
from .namespace import NAMESPACE
from .network import CONTROL, Network, inside
from .paths import AUDIT_LOG, STATE
from .processes import Component

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
NAMES = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)

_AUDIT_POLICY = STATE / "audit-policy.json"
_MOOR = f"system:serviceaccounts:{NAMESPACE}"


def components(network: Network) -> dict[str, Component]:
    return {
        ETCD: _component(ETCD, _etcd()),
        API_SERVER: _component(API_SERVER, _api_server(network)),
        CONTROLLER_MANAGER: _component(CONTROLLER_MANAGER, _controller_manager()),
        SCHEDULER: _component(SCHEDULER, _scheduler()),
    }


def write_audit_policy() -> None:
    """Every write but those to Leases, and what moor reads: what the suite and the benchmark count. Of locks also which volume
    and node they are for."""
    locks = {"group": "moor.dev", "resources": ["attachments"]}
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
            {"level": "Request", "verbs": ["create"], "resources": [locks]},
            {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
            {"level": "Metadata", "resources": [{"group": "moor.dev"}]},
            {"level": "Metadata", "userGroups": [_MOOR]},
            {"level": "None"},
        ],
    }
    _AUDIT_POLICY.write_text(json.dumps(policy, indent=1))


def _component(name: str, arguments: list[str | Path]) -> Component:
    return Component(name, [*inside(CONTROL), parts.program(name), *arguments])


def _etcd() -> list[str | Path]:
    return [
        "--name=moor-e2e",
        f"--data-dir={STATE / 'etcd'}",
        # The data lives no longer than the cluster, and every write is measured.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=moor-e2e=http://127.0.0.1:2380",
        "--log-level=warn",
    ]


def _api_server(network: Network) -> list[str | Path]:
    serving = certificates.api_identity(network)
    calling = certificates.KUBELET_CLIENT
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        "--secure-port=443",
        f"--advertise-address={network.control}",
        f"--service-cluster-ip-range={network.services}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={certificates.AUTHORITY}",
        # Without an aggregator nobody uses these, but the other parts ask for them all the time.
        f"--requestheader-client-ca-file={certificates.AUTHORITY}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--kubelet-certificate-authority={certificates.AUTHORITY}",
        f"--kubelet-client-certificate={calling.certificate}",
        f"--kubelet-client-key={calling.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={certificates.SERVICE_ACCOUNT_PUBLIC}",
        f"--service-account-signing-key-file={certificates.SERVICE_ACCOUNT_KEY}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--audit-policy-file={_AUDIT_POLICY}",
        f"--audit-log-path={AUDIT_LOG}",
        # One file, never rotated: a count over it must be complete.
        "--audit-log-maxsize=100000",
    ]


def _controller_manager() -> list[str | Path]:
    kubeconfig = certificates.CONTROLLER_MANAGER.kubeconfig
    return [
        *_client(kubeconfig),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={certificates.SERVICE_ACCOUNT_KEY}",
        f"--root-ca-file={certificates.AUTHORITY}",
    ]


def _scheduler() -> list[str | Path]:
    return _client(certificates.SCHEDULER.kubeconfig)


def _client(kubeconfig: Path) -> list[str | Path]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        # There is only one of it, and taking a Lease delays the start.
        "--leader-elect=false",
    ]
