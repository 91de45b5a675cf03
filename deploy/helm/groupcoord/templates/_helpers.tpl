{{- define "groupcoord.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Variables of a map of settings. Helm reads whole numbers as floats, and would write 1000000 as 1e+06. */ -}}
{{- define "groupcoord.variables" -}}
{{- range $name, $value := . }}
{{- if has $name (list "sasl_password" "ssl_key_password") }}
{{- fail (printf "%s is a password, and a ConfigMap is not secret. Use %s_file, and the Secret of `secrets.kafka`." $name $name) }}
{{- end }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value = int64 $value }}{{ end }}
COORDINATOR_{{ upper $name }}: {{ toString $value | quote }}
{{- end }}
{{- end -}}

{{- define "groupcoord.gatewaySettings" -}}
{{- $host := printf "coordinator-gateway.%s.svc.cluster.local" .Release.Namespace -}}
{{- $given := .Values.gateway.settings -}}
{{- $advertised := dict "gateway_advertised_host" ($given.gateway_advertised_host | default $host) -}}
{{- include "groupcoord.variables" (merge $advertised $given) -}}
{{- end -}}

{{- define "groupcoord.labels" -}}
app.kubernetes.io/part-of: groupcoord
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "groupcoord.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "groupcoord.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "groupcoord.probes" -}}
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
# `kubectl describe pod` shows the last sentence of the log
terminationMessagePolicy: FallbackToLogsOnError
{{- end -}}

{{- define "groupcoord.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
