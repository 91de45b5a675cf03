{{- define "image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/part-of: groupcoord
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "variables" -}}
{{- range $name, $value := . }}
COORDINATOR_{{ upper $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 5
  failureThreshold: 24
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
# `kubectl describe pod` shows the sentence with which a process ended.
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "user" -}}
- name: COORDINATOR_SASL_USERNAME
  valueFrom:
    secretKeyRef: {name: {{ .Values.kafka.secret }}, key: username}
{{- end -}}

{{- define "mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: kafka, mountPath: /etc/coordinator/kafka, readOnly: true}
- {name: ca, mountPath: /etc/coordinator/ca, readOnly: true}
{{- end -}}

{{- define "volumes" -}}
- name: kafka
  secret: {secretName: {{ .Values.kafka.secret }}, defaultMode: 0440}
- name: ca
  configMap: {name: {{ .Values.kafka.ca_config_map }}}
{{- end -}}

{{- define "pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # Kubernetes would add variables that begin with COORDINATOR_
{{- end -}}
