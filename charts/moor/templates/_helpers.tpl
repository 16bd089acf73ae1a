{{/* Names are fixed: one moor serves a cluster. */}}

{{- define "moor.labels" -}}
app.kubernetes.io/name: moor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Selector of one component; never changes, for a DaemonSet's selector cannot. */}}
{{- define "moor.selector" -}}
app.kubernetes.io/name: moor
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "moor.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "moor.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
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
