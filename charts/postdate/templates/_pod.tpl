{{/* Parts that the pods of the sidecars, the topics Job, the audit and the test share. */}}

{{- define "postdate.scheduling" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{/* Environment variables: the path of the configuration file, the user name if a secret contains it, `extraEnvVars`. */}}
{{- define "postdate.environment" -}}
- name: POSTDATE_CONFIG
  value: /etc/postdate/config/postdate.toml
{{- $sasl := .Values.kafka.sasl }}
{{- if and $sasl.mechanism $sasl.usernameKey (not $sasl.username) }}
- name: {{ eq $sasl.mechanism "OAUTHBEARER" | ternary "POSTDATE_KAFKA_COMMON_SASL_OAUTHBEARER_CLIENT_ID" "POSTDATE_KAFKA_COMMON_SASL_USERNAME" }}
  valueFrom:
    secretKeyRef:
      name: {{ $sasl.existingSecret }}
      key: {{ $sasl.usernameKey }}
{{- end }}
{{- with .Values.extraEnvVars }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "postdate.volumeMounts" -}}
- name: config
  mountPath: /etc/postdate/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if and .Values.kafka.sasl.mechanism .Values.kafka.sasl.existingSecret }}
- name: sasl
  mountPath: /etc/postdate/sasl
  readOnly: true
{{- end }}
{{- if .Values.kafka.tls.ca.existingSecret }}
- name: tls-ca
  mountPath: /etc/postdate/tls-ca
  readOnly: true
{{- end }}
{{- if .Values.kafka.tls.client.existingSecret }}
- name: tls-client
  mountPath: /etc/postdate/tls-client
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes. The argument is (dict "root" $ "configMap" name "tmpSizeLimit" size). */}}
{{- define "postdate.volumes" -}}
- name: config
  configMap:
    name: {{ .configMap }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .tmpSizeLimit }}
{{- with .root.Values.kafka }}
{{- if and .sasl.mechanism .sasl.existingSecret }}
- name: sasl
  secret:
    secretName: {{ .sasl.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .sasl.passwordKey }}
        path: password
{{- end }}
{{- with .tls.ca }}
{{- if .existingSecret }}
- name: tls-ca
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: ca.crt
{{- end }}
{{- end }}
{{- with .tls.client }}
{{- if .existingSecret }}
- name: tls-client
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .certificateKey }}
        path: tls.crt
      - key: {{ .privateKeyKey }}
        path: tls.key
{{- end }}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "probe" values "path" path) */}}
{{- define "postdate.probe" -}}
httpGet:
  path: {{ .path }}
  port: probes
initialDelaySeconds: {{ int .probe.initialDelaySeconds }}
periodSeconds: {{ int .probe.periodSeconds }}
timeoutSeconds: {{ int .probe.timeoutSeconds }}
failureThreshold: {{ int .probe.failureThreshold }}
{{- end -}}

{{- define "postdate.affinity" -}}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else if .Values.podAntiAffinityPreset }}
podAntiAffinity:
  {{- if eq .Values.podAntiAffinityPreset "hard" }}
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "postdate.selectorLabels" . | nindent 10 }}
          app.kubernetes.io/component: sidecar
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 1
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "postdate.selectorLabels" . | nindent 12 }}
            app.kubernetes.io/component: sidecar
  {{- end }}
{{- end }}
{{- end -}}
