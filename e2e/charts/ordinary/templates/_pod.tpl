{{/* What all Pods have in common. Takes the chart's root, a name, a script, and what the container has of the volume `data`. */}}
{{- define "ordinary.pod" -}}
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: {{ .root.Values.image }}
    command: [sh, -ec, {{ .script | quote }}]
    {{ .has }}
{{- end }}

{{- define "ordinary.files" -}}
volumeMounts: [{ name: data, mountPath: /data }]
{{- end }}

{{/* Spec of a claim. Takes the chart's root. */}}
{{- define "ordinary.claim" -}}
storageClassName: {{ .Values.storageClassName }}
accessModes: [ReadWriteOnce]
resources: { requests: { storage: 64Mi } }
{{- end }}
