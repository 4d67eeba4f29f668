{{- define "postdate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 46 characters: suffixes follow, and the name of a CronJob has 52 at most. */}}
{{- define "postdate.fullname" -}}
{{- $name := include "postdate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "postdate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "postdate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "postdate.tokenSecretName" -}}
{{- default (printf "%s-api-token" (include "postdate.fullname" .)) .Values.api.existingSecret -}}
{{- end -}}

{{/* What Kubernetes does not let change on a StatefulSet: nothing here may depend on a version. */}}
{{- define "postdate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "postdate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object; the argument is (dict "root" $ "component" "sidecar"). */}}
{{- define "postdate.labels" -}}
{{- $own := include "postdate.selectorLabels" .root | fromYaml -}}
{{- $own = merge $own (dict
      "app.kubernetes.io/component" .component
      "app.kubernetes.io/managed-by" .root.Release.Service
      "app.kubernetes.io/version" .root.Chart.AppVersion
      "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
    ) -}}
{{- merge $own .root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* The annotations block of an object, or nothing; (dict "root" $ "own" (dict …)). */}}
{{- define "postdate.annotations" -}}
{{- $all := merge (dict) .own .root.Values.commonAnnotations -}}
{{- if $all }}
annotations:
  {{- toYaml $all | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The reference of an image; (dict "image" … "default" the main image's values "tag" the tag where none is given). */}}
{{- define "postdate.imageReference" -}}
{{- $registry := default .default.registry .image.registry -}}
{{- $repository := default .default.repository .image.repository -}}
{{- $path := ternary (printf "%s/%s" $registry $repository) $repository (ne $registry "") -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $path .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $path (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "postdate.image" -}}
{{- include "postdate.imageReference" (dict "image" .Values.image "default" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "postdate.auditImage" -}}
{{- $tag := printf "%s-audit" (default .Chart.AppVersion .Values.image.tag) -}}
{{- include "postdate.imageReference" (dict "image" .Values.audit.image "default" .Values.image "tag" $tag) -}}
{{- end -}}

{{/* On one of the two services only, so that no pod is scraped twice; and on the one that has pods not ready, too. */}}
{{- define "postdate.scrapedLabel" -}}
postdate/scrape: "true"
{{- end -}}
