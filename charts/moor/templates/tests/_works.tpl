{{/*
Asks a component's processes whether they can do their work, with what is in moor's image: bash and getent. Takes the name or
the address under which they are found, their port, and whether one of them has to lead.
*/}}
{{- define "moor.works" -}}
# Prints what is answered to GET; fails unless that is 200.
get() (
  exec 3<>"/dev/tcp/$1/{{ .port }}" || exit 1
  printf 'GET %s HTTP/1.1\r\nHost: moor\r\nConnection: close\r\n\r\n' "$2" >&3
  read -r _ code _ <&3
  cat <&3
  [ "$code" = 200 ]
)
works() {
  addresses=$(getent ahosts {{ .host }} | cut -d' ' -f1 | sort -u)
  [ -n "$addresses" ] || { echo "{{ .host }} has no address: no Pod is there"; return 1; }
  leaders=0
  for address in $addresses; do
    answer=$(get "$address" /readyz 2>&1) || { echo "$address is not ready: ${answer##*$'\n'}"; return 1; }
    {{- if .leads }}
    metrics=$(get "$address" /metrics) || { echo "$address has no metrics"; return 1; }
    case "$metrics" in *$'\nmoor_leading 1\n'*) leaders=$((leaders + 1)) ;; esac
    {{- end }}
  done
  {{- if .leads }}
  [ "$leaders" = 1 ] || { echo "$leaders of the controllers lead, and it should be 1"; return 1; }
  {{- end }}
  echo "ready:" $addresses
}
# A rollout may be under way.
for _ in {1..20}; do
  works && exit 0
  sleep 3
done
exit 1
{{- end }}

{{/* A Pod of `helm test` that runs it. Takes the same, and the chart's root, a name, and on which nodes and network it runs. */}}
{{- define "moor.testPod" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "moor.podMetadata" (dict "root" .root "component" "test" "values" .values) | nindent 2 }}
spec:
  # It has no rights and needs none.
  automountServiceAccountToken: false
  {{- include "moor.pullSecrets" .root | nindent 2 }}
  restartPolicy: Never
  activeDeadlineSeconds: 120
  hostNetwork: {{ .hostNetwork }}
  containers:
    - name: test
      image: {{ include "moor.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [bash, "-c"]
      args:
        - |
          {{- include "moor.works" . | nindent 10 }}
      resources:
        {{- toYaml .root.Values.hooks.resources | nindent 8 }}
      securityContext:
        {{- include "moor.restricted" .root | nindent 8 }}
      terminationMessagePolicy: FallbackToLogsOnError
  {{- .placement | nindent 2 }}
{{- end }}

{{/* By which the processes of a component on the Pod network are found, also those that are not ready. */}}
{{- define "moor.testService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "moor.labels" .root | nindent 4 }}
    app.kubernetes.io/component: test
  annotations:
    helm.sh/hook: test
    helm.sh/hook-weight: "-1"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "moor.selector" .component | nindent 4 }}
  ports:
    - { name: admin, port: {{ .port }}, targetPort: admin }
{{- end }}
