"""What each value of the chart has to do: a table of values and of what is rendered with them."""

from __future__ import annotations

from collections.abc import Mapping

from .chart_expected import Case, Expected, Has

# The definitions are long, and few values have to do with them.
_LEAN: Mapping[str, object] = {"crds.install": False}
_LOOP = {**_LEAN, "loopDriver.enabled": True}
_OPEN = {**_LEAN, "adminHost": "0.0.0.0", "monitoring.podMonitor.enabled": True}

CONTROLLER, AGENT, LOOP = "Deployment/moor-controller", "DaemonSet/moor-agent", "DaemonSet/moor-loop-driver"
JOB, TEST, AGENT_TEST = "Job/moor-pre-delete", "Pod/moor-test-controller", "Pod/moor-test-agent"
_POD, _FIRST = "spec template spec", "spec template spec containers 0"
_CRD = "CustomResourceDefinition/volumes.moor.dev"
_SEATS = "PriorityLevelConfiguration/moor"
_TOLERATION = {"key": "dedicated", "operator": "Exists"}
_AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
_ANTI = f"{_POD} affinity podAntiAffinity"
_RESOURCES = {"limits": {"memory": "1Gi"}}


def _case(path: str, value: object, *expected: Expected, given: Mapping[str, object] = _LEAN) -> Case:
    return Case(path, value, expected, given)


def _arg(workload: str, argument: str) -> Expected:
    return Expected(workload, f"{_FIRST} args", Has(argument))


def _of_component(name: str, workload: str, account: str, given: Mapping[str, object]) -> tuple[Case, ...]:
    """What every component has."""

    def case(value: str, to: object, place: str, seen: object = None, of: str = workload) -> Case:
        return _case(f"{name}.{value}", to, Expected(of, place, to if seen is None else seen), given=given)

    variable = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    return (
        case("priorityClassName", "other", f"{_POD} priorityClassName"),
        case("resources", _RESOURCES, f"{_FIRST} resources limits memory", "1Gi"),
        case("nodeSelector", {"disk": "fast"}, f"{_POD} nodeSelector", {"disk": "fast", "kubernetes.io/os": "linux"}),
        case("affinity", _AFFINITY, f"{_POD} affinity"),
        case("tolerations", [_TOLERATION], f"{_POD} tolerations"),
        case("podLabels", {"team": "a"}, "spec template metadata labels team", "a"),
        case("podAnnotations", {"team": "a"}, "spec template metadata annotations team", "a"),
        case("annotations", {"team": "a"}, "metadata annotations team", "a"),
        case("serviceAccount.annotations", {"team": "a"}, "metadata annotations team", "a", f"ServiceAccount/{account}"),
        case("extraArgs", ["--other"], f"{_FIRST} args", Has("--other")),
        case("extraEnv", [variable], f"{_FIRST} env", Has(variable)),
        case("revisionHistoryLimit", 3, "spec revisionHistoryLimit"),
        case("terminationGracePeriodSeconds", 60, f"{_POD} terminationGracePeriodSeconds"),
    )


def _of_network(name: str, workload: str, host_network: bool, test: Expected) -> tuple[Case, ...]:
    config = {"nameservers": ["10.0.0.10"]}
    return (
        _case(f"{name}.dnsPolicy", "Default", Expected(workload, f"{_POD} dnsPolicy", "Default")),
        _case(f"{name}.dnsConfig", config, Expected(workload, f"{_POD} dnsConfig", config)),
        _case(f"{name}.hostNetwork", host_network, Expected(workload, f"{_POD} hostNetwork", host_network), test),
    )


def _of_daemon(name: str, workload: str, given: Mapping[str, object]) -> tuple[Case, ...]:
    by_hand, rolling = {"type": "OnDelete"}, {"maxSurge": 0, "maxUnavailable": 7}
    strategy = "spec updateStrategy"
    return (
        _case(f"{name}.updateStrategy", "OnDelete", Expected(workload, strategy, by_hand), given=given),
        _case(f"{name}.maxUnavailable", 7, Expected(workload, f"{strategy} rollingUpdate", rolling), given=given),
    )


def _of_image() -> tuple[Case, ...]:
    digest = "sha256:" + "0" * 64

    def case(value: str, to: str, image: str, loop_image: str, given: Mapping[str, object] = _LOOP) -> Case:
        pods = (Expected(pod, "spec containers 0 image", image) for pod in (TEST, AGENT_TEST))
        templates = (Expected(item, f"{_FIRST} image", image) for item in (CONTROLLER, AGENT, JOB))
        return _case(f"image.{value}", to, *templates, *pods, Expected(LOOP, f"{_FIRST} image", loop_image), given=given)

    def loop_case(value: str, to: str, image: str, given: Mapping[str, object] = _LOOP) -> Case:
        own = Expected(AGENT, f"{_FIRST} image", "moor.dev/moor:0.1.0")
        return _case(f"loopDriver.image.{value}", to, Expected(LOOP, f"{_FIRST} image", image), own, given=given)

    own, loop, mirror = "moor.dev/moor", "moor.dev/moor-loop-driver", "mirror.example.com"
    return (
        case("registry", mirror, f"{mirror}/{own}:0.1.0", f"{mirror}/{loop}:0.1.0"),
        case("repository", "example.com/moor", "example.com/moor:0.1.0", f"{loop}:0.1.0"),
        case("tag", "1.2.3", f"{own}:1.2.3", f"{loop}:1.2.3"),
        case("digest", digest, f"{own}@{digest}", f"{loop}:1.2.3", {**_LOOP, "image.tag": "1.2.3"}),
        loop_case("repository", "example.com/loop", "example.com/loop:0.1.0"),
        loop_case("tag", "1.2.3", f"{loop}:1.2.3"),
        loop_case("digest", digest, f"{loop}@{digest}", {**_LOOP, "loopDriver.image.tag": "1.2.3"}),
        _case(
            "image.pullPolicy", "Always",
            *(Expected(item, f"{_FIRST} imagePullPolicy", "Always") for item in (CONTROLLER, AGENT, LOOP, JOB)),
            Expected(TEST, "spec containers 0 imagePullPolicy", "Always"), given=_LOOP,
        ),
        _case(
            "imagePullSecrets", [{"name": "pull"}],
            *(Expected(item, f"{_POD} imagePullSecrets", [{"name": "pull"}]) for item in (CONTROLLER, AGENT, LOOP, JOB)),
            Expected(TEST, "spec imagePullSecrets", [{"name": "pull"}]), given=_LOOP,
        ),
    )  # fmt: skip


def _of_everybody() -> tuple[Case, ...]:
    keep = "metadata annotations helm.sh/resource-policy"
    everybody = (CONTROLLER, AGENT, LOOP, JOB)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    template = "apiVersion: v1\nkind: Secret\nmetadata: { name: {{ .Release.Name }} }"
    log = ({"name": "MOOR_LOG_FORMAT", "value": "json"}, {"name": "MOOR_LOG", "value": "debug"})
    return (
        _case("commonLabels", {"team": "a"}, Expected(CONTROLLER, "metadata labels team", "a")),
        _case("crds.install", False, Expected(_CRD, absent=True), Expected(JOB), given={}),
        _case("crds.keep", False, Expected(_CRD, keep, absent=True), Expected(_CRD), given={}),
        _case(
            "kubeletDir", "/data/kubelet", _arg(AGENT, "--kubelet-dir=/data/kubelet"),
            _arg(CONTROLLER, "--kubelet-dir=/data/kubelet"),
            Expected(AGENT, f"{_POD} volumes 0 hostPath path", "/data/kubelet"),
            _arg(LOOP, "--endpoint=unix:///data/kubelet/plugins/loop.moor.dev/csi.sock"), given=_LOOP,
        ),
        _case(
            "adminHost", "0.0.0.0", _arg(AGENT, "--admin-address=0.0.0.0:8081"),
            Expected(AGENT, f"{_FIRST} readinessProbe httpGet host", absent=True),
        ),
        _case("longestCallSeconds", 600, _arg(AGENT, "--longest-call=600"), _arg(CONTROLLER, "--longest-call=600")),
        *(
            _case(path, text["value"], *(Expected(item, f"{_FIRST} env", Has(text)) for item in everybody), given=_LOOP)
            for path, text in zip(("log.format", "log.filter"), log, strict=True)
        ),
        _case(
            "flowControl.enabled", False, Expected(_SEATS, absent=True), Expected("FlowSchema/moor", absent=True),
            Expected("FlowSchema/moor-leases", absent=True), Expected(AGENT),
        ),
        _case("flowControl.shares", 7, Expected(_SEATS, "spec limited nominalConcurrencyShares", 7), Expected("FlowSchema/moor")),
        _case("inlineVolumes", False, Expected("CSIDriver/moor.dev", absent=True), Expected(AGENT)),
        _case("admission.enabled", False, Expected("ValidatingAdmissionPolicy/moor-locks", absent=True), Expected(AGENT)),
        _case(
            "admission.breakGlassGroups", ["fire"],
            Expected("ClusterRoleBinding/moor-break-glass", "subjects 0 name", "fire"),
        ),
        _case("uninstall.keepMounts", True, _arg(JOB, "--keep-mounts")),
        _case(
            "extraObjects", [secret, template], Expected("Secret/a"), Expected("Secret/moor"),
        ),
    )  # fmt: skip


def _of_roles() -> tuple[Case, ...]:
    label = "metadata labels rbac.authorization.k8s.io/aggregate-to-"
    kinds = {"plugins", "plugininstances", "attachments", "volumehandles"}
    readable = [Expected("ClusterRole/moor-view", "rules 0 resources", Has(kind)) for kind in {*kinds, "volumes"}]
    readable += [Expected("ClusterRole/moor-cluster-view", "rules 0 resources", Has(kind)) for kind in kinds]
    readable += [Expected("ClusterRole/moor-edit", "rules 1 resources", Has(kind)) for kind in kinds]
    return (
        _case(
            "rbac.aggregateToUserRoles", True, *readable,
            Expected("ClusterRole/moor-view", f"{label}view", "true"),
            Expected("ClusterRole/moor-edit", f"{label}edit", "true"),
            Expected("ClusterRole/moor-plugin-admin", f"{label}admin", "true"),
        ),
        _case(
            "agent.secretAccess", "cluster",
            Expected("ClusterRoleBinding/moor-agent-secrets", "subjects 0 name", "moor-agent"),
        ),
        _case(
            "agent.secretNamespaces", ["storage-keys"],
            Expected("RoleBinding/moor-agent-secrets", "metadata namespace", "storage-keys"),
            Expected("RoleBinding/moor-agent-secrets", "subjects 0 name", "moor-agent"),
        ),
    )  # fmt: skip


def _of_controller() -> tuple[Case, ...]:
    budget, policy = "PodDisruptionBudget/moor-controller", "NetworkPolicy/moor-controller"
    guarded = {**_LEAN, "controller.networkPolicy.enabled": True}
    peer, rule = {"namespaceSelector": {}}, {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    selector = {"matchLabels": {"app.kubernetes.io/component": "controller", "app.kubernetes.io/name": "moor"}}
    return (
        *_of_component("controller", CONTROLLER, "moor-controller", _LEAN),
        *_of_network("controller", CONTROLLER, True, Expected(TEST, absent=True)),
        _case("controller.affinity", _AFFINITY, Expected(CONTROLLER, _ANTI, absent=True)),
        _case("controller.replicas", 1, Expected(CONTROLLER, "spec replicas", 1), Expected(budget, absent=True)),
        _case(
            "controller.adminPort", 9000, _arg(CONTROLLER, "--admin-address=0.0.0.0:9000"),
            Expected(CONTROLLER, f"{_FIRST} ports 0 containerPort", 9000),
        ),
        _case("controller.lingerSeconds", 0, _arg(CONTROLLER, "--linger=0")),
        _case("controller.strategy", "Recreate", Expected(CONTROLLER, "spec strategy", {"type": "Recreate"})),
        _case("controller.maxSurge", 0, Expected(CONTROLLER, "spec strategy rollingUpdate maxSurge", 0)),
        _case("controller.maxUnavailable", "50%", Expected(CONTROLLER, "spec strategy rollingUpdate maxUnavailable", "50%")),
        _case(
            "controller.topologySpreadConstraints", [spread],
            Expected(CONTROLLER, f"{_POD} topologySpreadConstraints 0", {**spread, "labelSelector": selector}),
        ),
        _case("controller.podDisruptionBudget.enabled", False, Expected(budget, absent=True), Expected(CONTROLLER)),
        _case("controller.podDisruptionBudget.minAvailable", "50%", Expected(budget, "spec minAvailable", "50%")),
        _case(
            "controller.podDisruptionBudget.maxUnavailable", 0,
            Expected(budget, "spec maxUnavailable", 0), Expected(budget, "spec minAvailable", absent=True),
        ),
        _case(
            "controller.networkPolicy.enabled", True, Expected(policy, "spec policyTypes", ["Ingress"]),
            Expected(policy, "spec ingress 0 from 0 podSelector matchLabels app.kubernetes.io/component", "test"),
        ),
        _case("controller.networkPolicy.from", [peer], Expected(policy, "spec ingress 0 from 1", peer), given=guarded),
        _case(
            "controller.networkPolicy.egress", [rule], Expected(policy, "spec egress", [rule]),
            Expected(policy, "spec policyTypes", ["Ingress", "Egress"]), given=guarded,
        ),
    )  # fmt: skip


def _of_agent() -> tuple[Case, ...]:
    elsewhere = {"path": "/data/sockets", "type": "DirectoryOrCreate"}
    socket = "--endpoint=unix:///data/sockets/loop.moor.dev/csi.sock"
    return (
        *_of_component("agent", AGENT, "moor-agent", _LEAN),
        *_of_network("agent", AGENT, False, Expected(AGENT_TEST, "spec hostNetwork", False)),
        *_of_daemon("agent", AGENT, _LEAN),
        _case(
            "agent.pluginDir", "/data/sockets", _arg(AGENT, "--plugin-dir=/data/sockets"), _arg(LOOP, socket),
            _arg(CONTROLLER, "--plugin-dir=/data/sockets"),
            *(Expected(item, f"{_POD} volumes 1 hostPath", elsewhere) for item in (AGENT, LOOP)),
            *(Expected(item, f"{_FIRST} volumeMounts 1 mountPath", elsewhere["path"]) for item in (AGENT, LOOP)),
            given=_LOOP,
        ),
        _case(
            "agent.pluginDir", "/var/lib/kubelet/sockets", _arg(AGENT, "--plugin-dir=/var/lib/kubelet/sockets"),
            Expected(AGENT, f"{_POD} volumes 1 name", "state"),
        ),
        _case(
            "agent.stateDir", "/data/moor",
            Expected(AGENT, f"{_FIRST} env", Has({"name": "MOOR_STATE_DIR", "value": "/data/moor"})),
            Expected(AGENT, f"{_POD} volumes 1 hostPath path", "/data/moor"),
        ),
        _case("agent.nodeMountNamespace", "/proc/1/root/mnt", _arg(AGENT, "--node-mount-namespace=/proc/1/root/mnt")),
        _case(
            "agent.adminPort", 9001, _arg(AGENT, "--admin-address=127.0.0.1:9001"),
            Expected(AGENT, f"{_FIRST} ports 0 containerPort", 9001),
        ),
        _case("agent.auditInterval", 0, _arg(AGENT, "--audit-interval=0")),
        _case("agent.capacityInterval", 0, _arg(AGENT, "--capacity-interval=0")),
        _case("agent.healthInterval", 0, _arg(AGENT, "--health-interval=0")),
    )  # fmt: skip


def _of_loop_driver() -> tuple[Case, ...]:
    default = "metadata annotations storageclass.kubernetes.io/is-default-class"
    prefix, storage = "loopDriver.storageClass", "StorageClass/moor-loop"
    plugin = "Plugin/loop.moor.dev"
    return (
        *_of_component("loopDriver", LOOP, "moor-loop-driver", _LOOP),
        *_of_daemon("loopDriver", LOOP, _LOOP),
        _case(
            "loopDriver.enabled", True, Expected(LOOP), Expected(plugin, "spec balancing", "PerTopology"),
            Expected(plugin, "metadata annotations helm.sh/hook", "post-install,post-upgrade"),
            Expected(storage, "reclaimPolicy", "Delete"), Expected(storage, "allowVolumeExpansion", True),
            Expected(storage, "volumeBindingMode", "WaitForFirstConsumer"), Expected(storage, default, absent=True),
        ),
        _case("loopDriver.shared", True, _arg(LOOP, "--shared"), Expected(plugin, "spec balancing", "Spread"), given=_LOOP),
        _case(
            "loopDriver.stateDir", "/data/loop", _arg(LOOP, "--state-dir=/data/loop"),
            Expected(LOOP, f"{_POD} volumes 1 hostPath path", "/data/loop"), given=_LOOP,
        ),
        _case("loopDriver.maxVolumesPerNode", 5, _arg(LOOP, "--max-volumes-per-node=5"), given=_LOOP),
        _case("loopDriver.capacityBytes", 1 << 40, _arg(LOOP, f"--capacity-bytes={1 << 40}"), given=_LOOP),
        _case("loopDriver.recordCalls", True, _arg(LOOP, "--record-calls"), given=_LOOP),
        _case(f"{prefix}.name", "other", Expected("StorageClass/other"), Expected(storage, absent=True), given=_LOOP),
        _case(f"{prefix}.reclaimPolicy", "Retain", Expected(storage, "reclaimPolicy", "Retain"), given=_LOOP),
        _case(f"{prefix}.isDefault", True, Expected(storage, default, "true"), given=_LOOP),
    )  # fmt: skip


def _of_hooks() -> tuple[Case, ...]:
    def case(value: str, to: object, place: str, seen: object = None) -> Case:
        wanted = to if seen is None else seen
        in_job, in_pod = place, place.removeprefix("spec template ")
        return _case(f"hooks.{value}", to, Expected(JOB, in_job, wanted), Expected(TEST, in_pod, wanted))

    return (
        case("nodeSelector", {"disk": "fast"}, f"{_POD} nodeSelector"),
        case("affinity", _AFFINITY, f"{_POD} affinity"),
        case("tolerations", [_TOLERATION], f"{_POD} tolerations"),
        case("resources", _RESOURCES, f"{_FIRST} resources limits memory", "1Gi"),
        case("podLabels", {"team": "a"}, "spec template metadata labels team", "a"),
        case("podAnnotations", {"team": "a"}, "spec template metadata annotations team", "a"),
        # They go where the controller goes, unless they are told otherwise.
        _case(
            "controller.nodeSelector", {"disk": "fast"}, Expected(JOB, f"{_POD} nodeSelector disk", "fast"),
            Expected(TEST, "spec nodeSelector disk", "fast"),
        ),
    )  # fmt: skip


def _of_monitoring() -> tuple[Case, ...]:
    service, monitor, rule = "Service/moor-controller", "ServiceMonitor/moor-controller", "PrometheusRule/moor"
    with_service = {**_LEAN, "monitoring.service.enabled": True}
    with_monitor = {**_LEAN, "monitoring.serviceMonitor.enabled": True}
    with_rules = {**_LEAN, "monitoring.prometheusRule.enabled": True}
    with_dashboard = {**_LEAN, "monitoring.dashboard.enabled": True}
    pods, dashboard = "PodMonitor/moor-agent", "ConfigMap/moor-dashboard"
    extra = {"alert": "Mine", "expr": "vector(1)"}

    def alert(number: int, place: str, value: object) -> Expected:
        return Expected(rule, f"spec groups 0 rules {number} {place}", value)

    def of_rule(value: str, to: object, *expected: Expected) -> Case:
        return _case(f"monitoring.prometheusRule.{value}", to, *expected, given=with_rules)

    return (
        _case(
            "monitoring.service.enabled", True, Expected(service, "spec clusterIP", "None"),
            Expected(service, "spec ports 0 port", 8080),
        ),
        _case(
            "monitoring.service.annotations", {"team": "a"}, Expected(service, "metadata annotations team", "a"),
            given=with_service,
        ),
        _case(
            "monitoring.dashboard.enabled", True, Expected(dashboard, "metadata labels grafana_dashboard", "1"),
        ),
        _case(
            "monitoring.dashboard.labels", {"team": "a"}, Expected(dashboard, "metadata labels team", "a"),
            given=with_dashboard,
        ),
        _case(
            "monitoring.dashboard.annotations", {"folder": "Storage"},
            Expected(dashboard, "metadata annotations folder", "Storage"), given=with_dashboard,
        ),
        _case(
            "monitoring.serviceMonitor.enabled", True, Expected(service),
            Expected(monitor, "spec endpoints 0 port", "admin"),
        ),
        _case(
            "monitoring.serviceMonitor.labels", {"release": "prometheus"},
            Expected(monitor, "metadata labels release", "prometheus"), given=with_monitor,
        ),
        _case(
            "monitoring.serviceMonitor.interval", "15s", Expected(monitor, "spec endpoints 0 interval", "15s"),
            given=with_monitor,
        ),
        _case(
            "monitoring.serviceMonitor.scrapeTimeout", "5s", Expected(monitor, "spec endpoints 0 scrapeTimeout", "5s"),
            given=with_monitor,
        ),
        _case(
            "monitoring.podMonitor.enabled", True, Expected(pods, "spec podMetricsEndpoints 0 port", "admin"),
            given={**_LEAN, "adminHost": "0.0.0.0"},
        ),
        _case("monitoring.podMonitor.agents", False, Expected(pods, absent=True), Expected(AGENT), given=_OPEN),
        _case("monitoring.podMonitor.controller", True, Expected("PodMonitor/moor-controller"), given=_OPEN),
        _case(
            "monitoring.podMonitor.labels", {"release": "prometheus"},
            Expected(pods, "metadata labels release", "prometheus"), given=_OPEN,
        ),
        _case(
            "monitoring.podMonitor.interval", "15s", Expected(pods, "spec podMetricsEndpoints 0 interval", "15s"),
            given=_OPEN,
        ),
        _case(
            "monitoring.podMonitor.scrapeTimeout", "5s",
            Expected(pods, "spec podMetricsEndpoints 0 scrapeTimeout", "5s"), given=_OPEN,
        ),
        _case("monitoring.prometheusRule.enabled", True, alert(0, "alert", "MoorNoLeader")),
        of_rule("labels", {"release": "prometheus"}, Expected(rule, "metadata labels release", "prometheus")),
        of_rule("alertLabels", {"team": "a"}, *(alert(number, "labels team", "a") for number in range(8))),
        of_rule("noLeaderFor", "9m", alert(0, "for", "9m")),
        of_rule("stuckClaims", 5, alert(2, "expr", Has("}) > 5"))),
        of_rule("stuckClaimsFor", "9m", alert(2, "for", "9m")),
        of_rule("queueDepth", 5, alert(3, "expr", Has("}) > 5"))),
        of_rule("queueDepthFor", "9m", alert(3, "for", "9m")),
        of_rule("troubleFor", "9m", *(alert(number, "for", "9m") for number in range(4, 8))),
        of_rule("extraRules", [extra], Expected(rule, "spec groups 0 rules 15", extra)),
    )  # fmt: skip


CASES = (
    *_of_image(), *_of_everybody(), *_of_roles(), *_of_controller(), *_of_agent(), *_of_loop_driver(), *_of_hooks(),
    *_of_monitoring(),
)  # fmt: skip

# Kinds that are rendered when everything is switched on.
KINDS = {
    "Deployment", "DaemonSet", "Job", "Pod", "Service", "ServiceMonitor", "PodMonitor", "PrometheusRule", "NetworkPolicy",
    "CustomResourceDefinition", "PodDisruptionBudget", "StorageClass", "Plugin", "CSIDriver", "ConfigMap",
    "PriorityLevelConfiguration", "FlowSchema",
}  # fmt: skip

# What values.schema.json refuses, each for itself.
REFUSED: tuple[Mapping[str, object], ...] = (
    {"loopDriver.storageClass.reclaimPolicy": "Recycle"},
    {"loopDriver.storageClass.name": ""},
    {"loopDriver.storageClass.isDefault": "maybe"},
    {"loopDriver.storageClass.late": True},
    {"image.digest": "latest"},
    {"loopDriver.image.digest": "latest"},
    {"loopDriver.image.repository": ""},
    {"commonLabels": {"app.kubernetes.io/name": "other"}},
    {"agent.podLabels": {"app.kubernetes.io/component": "other"}},
    {"agent.extraEnv": [{"name": "NODE_NAME", "value": "other"}]},
    {"agent.terminationGracePeriodSeconds": 20},
    {"agent.maxUnavailable": 0},
    {"agent.maxSurge": 1},
    {"agent.pluginDir": "plugins"},
    {"controller.terminationGracePeriodSeconds": 1},
    {"controller.maxSurge": 0, "controller.maxUnavailable": 0},
    {"controller.affinity": {"podAntiAffinities": {}}},
    {"monitoring.prometheusRule.noLeaderFor": "soon"},
)

# What templates refuse, and the words by which they say why.
FAILING: tuple[tuple[Mapping[str, object], str], ...] = (
    ({"monitoring.podMonitor.enabled": True}, "Set adminHost to 0.0.0.0"),
    ({"monitoring.podMonitor.enabled": True, "adminHost": "[::1]"}, "Set adminHost to 0.0.0.0"),
    ({"monitoring.serviceMonitor.enabled": True, "controller.hostNetwork": True}, "Set adminHost to 0.0.0.0"),
    ({"controller.networkPolicy.enabled": True, "controller.hostNetwork": True}, "has no effect"),
)
