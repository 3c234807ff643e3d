{{- define "warmwatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains "warmwatch" .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-warmwatch" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}
{{- define "warmwatch.selector" -}}
app.kubernetes.io/name: warmwatch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "warmwatch.labels" -}}
{{ include "warmwatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "warmwatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
