{{/* Names are fixed: one moor serves a cluster. */}}

{{/* Labels of the chart's own, which commonLabels and podLabels cannot replace. */}}
{{- define "moor.ownLabels" -}}
app.kubernetes.io/name: moor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of an object. */}}
{{- define "moor.labels" -}}
{{ include "moor.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Metadata of a Pod. Takes the chart's root, the component's name and the component's values. */}}
{{- define "moor.podMetadata" -}}
labels:
  {{- include "moor.ownLabels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with merge (dict) .values.podLabels .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Annotations of an object, if there are any. */}}
{{- define "moor.annotations" -}}
{{- with . }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Selector of one component; never changes, for a DaemonSet's selector cannot. */}}
{{- define "moor.selector" -}}
app.kubernetes.io/name: moor
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "moor.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "moor.loopDriverImage" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end }}
{{- with .Values.loopDriver.image }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Values.image.tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "moor.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a component's Pods run. Takes its values. */}}
{{- define "moor.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the hooks' Pods run. */}}
{{- define "moor.hookPlacement" -}}
{{- $nodes := .Values.hooks.nodeSelector | default .Values.controller.nodeSelector }}
{{- include "moor.placement" (merge (dict "nodeSelector" $nodes) .Values.hooks) }}
{{- end }}

{{/* The network of a component's Pods. Takes its values. */}}
{{- define "moor.network" -}}
hostNetwork: {{ .hostNetwork }}
{{- with .dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" .hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How a DaemonSet's Pods are replaced. Takes the component's values. No surge: two of them must never serve one node. */}}
{{- define "moor.updateStrategy" -}}
type: {{ .updateStrategy }}
{{- if eq .updateStrategy "RollingUpdate" }}
rollingUpdate: { maxSurge: 0, maxUnavailable: {{ .maxUnavailable }} }
{{- end }}
{{- end }}

{{/* Below which drivers have their sockets. */}}
{{- define "moor.pluginDir" -}}
{{ .Values.agent.pluginDir | default (printf "%s/plugins" .Values.kubeletDir) }}
{{- end }}

{{/* The same, if kubelet's directory does not hold it, so that it has to be mounted; else empty. */}}
{{- define "moor.pluginDirElsewhere" -}}
{{- $path := include "moor.pluginDir" . }}
{{- if not (hasPrefix (printf "%s/" .Values.kubeletDir) (printf "%s/" $path)) }}{{ $path }}{{ end }}
{{- end }}

{{- define "moor.podEnv" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
{{ include "moor.logEnv" . }}
{{- end }}

{{/* Where health and metrics are served. Takes the chart's root and whether the Pod is on the node's network. */}}
{{- define "moor.adminHost" -}}
{{ .root.Values.adminHost | default (ternary "127.0.0.1" "0.0.0.0" .hostNetwork) }}
{{- end }}

{{/* "true" if only the node itself reaches it. Takes the same. */}}
{{- define "moor.onLoopback" -}}
{{- if regexMatch "^(127\\.|\\[::1\\]$)" (include "moor.adminHost" .) }}true{{ end }}
{{- end }}

{{/* A probe of it. kubelet asks from the node itself, so it reaches the node's loopback. */}}
{{- define "moor.probe" -}}
{{- $host := include "moor.adminHost" . -}}
httpGet: { path: {{ .path }}, port: admin{{ if eq $host "127.0.0.1" "[::1]" }}, host: {{ trimAll "[]" $host | quote }}{{ end }} }
{{- end }}

{{- define "moor.logEnv" -}}
- name: MOOR_LOG_FORMAT
  value: {{ .Values.log.format }}
{{- with .Values.log.filter }}
- name: MOOR_LOG
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Security of containers that need nothing from the host. */}}
{{- define "moor.restricted" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* Privileged: a mount reaches the host only through Bidirectional propagation, which asks for it. */}}
{{- define "moor.privileged" -}}
privileged: true
runAsUser: 0
readOnlyRootFilesystem: true
{{- end }}

{{- define "moor.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:moor-controller
{{- end }}

{{- define "moor.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:moor-agent
{{- end }}
