{{- define "postdate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 46 characters, since suffixes follow, and Kubernetes limits the name of a CronJob to 52. */}}
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

{{/* Labels of the selectors. They are immutable in a StatefulSet, so none may depend on a version. */}}
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

{{/* The annotations block of an object; empty if it has none. The argument is (dict "root" $ "own" (dict …)). */}}
{{- define "postdate.annotations" -}}
{{- $all := merge (dict) .own .root.Values.commonAnnotations -}}
{{- if $all }}
annotations:
  {{- toYaml $all | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The reference of an image. The argument is a dict: `image`, `default` (its registry and repository apply if `image`
names none), and `tag` (applies if `image` names none). */}}
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

{{/* Only one of the two services has this label, so that no pod is scraped twice. It is the headless service, which also
includes pods that are not ready. */}}
{{- define "postdate.scrapedLabel" -}}
postdate/scrape: "true"
{{- end -}}
