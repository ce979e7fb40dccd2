{{- define "lakebed.name" -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- end }}

{{- define "lakebed.labels" -}}
app.kubernetes.io/name: lakebed
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lakebed.account" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "lakebed.name" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "lakebed.container" -}}
image: "{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef: { name: {{ include "lakebed.name" . }} }
  {{- range .Values.configMapRefs }}
  - configMapRef: { name: {{ . }} }
  {{- end }}
  {{- range .Values.secretRefs }}
  - secretRef: { name: {{ . }} }
  {{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
resources: {{- toYaml .Values.resources | nindent 2 }}
volumeMounts: [{ name: scratch, mountPath: /var/lib/lakebed }]
{{- end }}

{{- define "lakebed.pod" -}}
serviceAccountName: {{ include "lakebed.account" . }}
terminationGracePeriodSeconds: 90
securityContext: { runAsNonRoot: true, runAsUser: 10017, fsGroup: 10017, seccompProfile: { type: RuntimeDefault } }
volumes:
  - name: scratch
    emptyDir: { {{- if .Values.scratchSize }} sizeLimit: {{ .Values.scratchSize }} {{ end -}} }
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
