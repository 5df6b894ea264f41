{{- define "coppice.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "coppice.labels" -}}
{{ include "coppice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "coppice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "coppice.image" -}}
{{ required "image.repository: name the image that you have built from deploy/container/Dockerfile" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "coppice.secret" -}}
{{ .Values.secret.existing | default (include "coppice.name" .) }}
{{- end }}

{{- define "coppice.objectStore" -}}
{{ required "objectStore: set it to s3://bucket/prefix?parameters; machines share nothing else" .Values.objectStore }}
{{- end }}

{{/* Environment variables from a map of settings. */}}
{{- define "coppice.settings" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{/* What the join and the runner have in common. */}}
{{- define "coppice.runnerEnv" -}}
- name: HOST_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
- name: COPPICE_RUNNER_LISTEN
  value: $(HOST_IP):{{ .Values.runner.port }}
- name: COPPICE_JOIN_URL
  value: https://{{ include "coppice.name" . }}-internal.{{ .Release.Namespace }}.svc:9444
{{- end }}
