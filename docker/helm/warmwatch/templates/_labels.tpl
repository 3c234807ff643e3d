{{- define "warmwatch.labels" -}}
app.kubernetes.io/name: warmwatch
{{- end }}
