{{/* Formats a value as TOML. Helm reads numbers as floats; an integer must be written without a decimal point. */}}
{{- define "postdate.tomlValue" -}}
{{- if kindIs "slice" . -}}
[{{- range $index, $item := . }}{{ if $index }}, {{ end }}{{ include "postdate.tomlValue" $item }}{{ end -}}]
{{- else if kindIs "string" . -}}
{{- toJson . -}}
{{- else if kindIs "bool" . -}}
{{- . -}}
{{- else if eq (float64 .) (floor .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Formats a map as lines `key = value`, sorted by key. Omits null values and tables. */}}
{{- define "postdate.tomlLines" -}}
{{- range $key := keys . | sortAlpha }}
{{- $value := get $ $key }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ if regexMatch "^[A-Za-z0-9_-]+$" $key }}{{ $key }}{{ else }}{{ toJson $key }}{{ end }} = {{ include "postdate.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* librdkafka properties of every client: `kafka.common`, and those that follow from `kafka.tls` and `kafka.sasl`. */}}
{{- define "postdate.commonProperties" -}}
{{- $kafka := .Values.kafka -}}
{{- $made := dict -}}
{{- $protocol := ternary "SSL" "PLAINTEXT" $kafka.tls.enabled -}}
{{- if $kafka.sasl.mechanism -}}
{{- $protocol = printf "SASL_%s" $protocol -}}
{{- $_ := set $made "sasl.mechanism" $kafka.sasl.mechanism -}}
{{- $prefix := "sasl." -}}
{{- if eq $kafka.sasl.mechanism "OAUTHBEARER" -}}
{{- $_ := set $made "sasl.oauthbearer.method" "oidc" -}}
{{- with $kafka.sasl.tokenEndpointUrl }}{{- $_ := set $made "sasl.oauthbearer.token.endpoint.url" . -}}{{- end -}}
{{- with $kafka.sasl.username }}{{- $_ := set $made "sasl.oauthbearer.client.id" . -}}{{- end -}}
{{- with $kafka.sasl.existingSecret }}{{- $_ := set $made "sasl.oauthbearer.client.secret.file" "/etc/postdate/sasl/password" -}}{{- end -}}
{{- else -}}
{{- with $kafka.sasl.username }}{{- $_ := set $made "sasl.username" . -}}{{- end -}}
{{- with $kafka.sasl.existingSecret }}{{- $_ := set $made "sasl.password.file" "/etc/postdate/sasl/password" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne $protocol "PLAINTEXT" }}{{- $_ := set $made "security.protocol" $protocol -}}{{- end -}}
{{- if $kafka.tls.enabled -}}
{{- with $kafka.tls.ca.existingSecret }}{{- $_ := set $made "ssl.ca.location" "/etc/postdate/tls-ca/ca.crt" -}}{{- end -}}
{{- if $kafka.tls.client.existingSecret -}}
{{- $_ := set $made "ssl.certificate.location" "/etc/postdate/tls-client/tls.crt" -}}
{{- $_ := set $made "ssl.key.location" "/etc/postdate/tls-client/tls.key" -}}
{{- end -}}
{{- end -}}
{{- merge (dict) $kafka.common $made | toJson -}}
{{- end -}}

{{/* The configuration file of the program. It contains no secrets. */}}
{{- define "postdate.configuration" -}}
{{- include "postdate.check" . -}}
# Made by the Helm chart from `kafka`, `requestTopics` and `config` of the values.
{{- include "postdate.tomlLines" .Values.config }}
workers = 1
data_dir = "/var/lib/postdate/data"

[kafka]
bootstrap_servers = {{ toJson .Values.kafka.bootstrapServers }}
{{- range $name := list "common" "consumer" "producer" "admin" }}
{{- $properties := eq $name "common" | ternary (include "postdate.commonProperties" $ | fromJson) (get $.Values.kafka $name) }}
{{- if $properties }}

[kafka.{{ $name }}]
{{- include "postdate.tomlLines" $properties }}
{{- end }}
{{- end }}
{{- range .Values.requestTopics }}

[[request_topics]]
{{- include "postdate.tomlLines" . }}
{{- end }}
{{- range $section := keys .Values.config | sortAlpha }}
{{- $table := get $.Values.config $section }}
{{- if and (kindIs "map" $table) $table }}

[{{ $section }}]
{{- include "postdate.tomlLines" $table }}
{{- end }}
{{- end }}

[http]
host = "0.0.0.0"
port = {{ int .Values.http.port }}
{{- $service := include "postdate.fullname" . }}
{{- $names := list $service }}
{{- range list "" ".svc" }}
{{- $names = append $names (printf "%s.%s%s" $service $.Release.Namespace .) }}
{{- end }}
names = {{ toJson (concat $names .Values.http.names) }}
payloads = {{ toJson .Values.api.payloads }}
{{- with .Values.http.tls }}
{{- if .secretName }}
tls_cert_file = "/etc/postdate/http-tls/tls.crt"
tls_key_file = "/etc/postdate/http-tls/tls.key"
{{- if .caKey }}
tls_ca_file = "/etc/postdate/http-tls/ca.crt"
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.api.enabled }}
token_file = "/etc/postdate/api/token"
{{- end }}
{{- end -}}

{{/* Checks that the schema cannot express, or reports unclearly. */}}
{{- define "postdate.check" -}}
{{- if not .Values.kafka.bootstrapServers -}}
{{- fail "kafka.bootstrapServers is required: HOST:PORT of one or more brokers, comma separated" -}}
{{- end -}}
{{- range .Values.requestTopics -}}
{{- if not .allow -}}
{{- fail (printf "requestTopics: %s needs `allow`: the patterns of the topics that its requests may name as target, such as [\"orders.*\"], or [\"*\"] for all" .name) -}}
{{- end -}}
{{- end -}}
{{- $secret := "(password|passphrase|secret|key\\.pem|jaas\\.config|oauthbearer\\.config)$" -}}
{{- range $name := list "common" "consumer" "producer" "admin" -}}
{{- range $property := keys (get $.Values.kafka $name) -}}
{{- if regexMatch $secret $property -}}
{{- fail (printf "kafka.%s: %s is a secret, and values become part of a ConfigMap: use kafka.sasl.existingSecret, or mount a secret and name its file by %s.file" $name $property $property) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.http.port) (int .Values.http.probePort) -}}
{{- fail "http.port and http.probePort are the same: give the pods two ports" -}}
{{- end -}}
{{- $sasl := .Values.kafka.sasl -}}
{{- if and (or $sasl.existingSecret $sasl.username) (not $sasl.mechanism) -}}
{{- fail "kafka.sasl names a secret or a user, and kafka.sasl.mechanism is empty: set it, or leave them out" -}}
{{- end -}}
{{- if and $sasl.mechanism (not $sasl.existingSecret) -}}
{{- fail (printf "kafka.sasl.existingSecret is required with kafka.sasl.mechanism=%s" $sasl.mechanism) -}}
{{- end -}}
{{- if and $sasl.mechanism (not $sasl.username) (not $sasl.usernameKey) -}}
{{- fail "kafka.sasl.username or kafka.sasl.usernameKey is required with kafka.sasl.mechanism" -}}
{{- end -}}
{{- if and (eq $sasl.mechanism "OAUTHBEARER") (not $sasl.tokenEndpointUrl) -}}
{{- fail "kafka.sasl.tokenEndpointUrl is required with kafka.sasl.mechanism=OAUTHBEARER" -}}
{{- end -}}
{{- if and (or .Values.kafka.tls.ca.existingSecret .Values.kafka.tls.client.existingSecret) (not .Values.kafka.tls.enabled) -}}
{{- fail "kafka.tls names secrets, and kafka.tls.enabled is false: set it to true, or leave them out" -}}
{{- end -}}
{{- if and (eq .Values.audit.mode "local") .Values.audit.enabled (eq $sasl.mechanism "OAUTHBEARER") -}}
{{- fail "audit.mode=local does not support OAUTHBEARER: use audit.mode=spark-submit with audit.javaProperties" -}}
{{- end -}}
{{- if and (eq .Values.audit.mode "spark-submit") .Values.audit.enabled (not .Values.audit.master) -}}
{{- fail "audit.master is required with audit.mode=spark-submit" -}}
{{- end -}}
{{- $strimzi := .Values.strimzi -}}
{{- if and (or $strimzi.topics.create $strimzi.user.create) (not $strimzi.cluster) -}}
{{- fail "strimzi.cluster is required with strimzi.topics.create and strimzi.user.create: the name of the Kafka resource" -}}
{{- end -}}
{{- if and $strimzi.topics.create .Values.topics.create -}}
{{- fail "topics.create and strimzi.topics.create are both true, and only one may create topics: set topics.create to false" -}}
{{- end -}}
{{- $policy := .Values.networkPolicy -}}
{{- if and .Values.audit.enabled (eq .Values.audit.mode "spark-submit") $policy.enabled (not $policy.allowExternalEgress) (not $policy.auditEgress) -}}
{{- fail "networkPolicy.auditEgress is required with audit.mode=spark-submit: the rules by which the audit reaches its Spark cluster (and networkPolicy.auditIngress those by which executors reach the audit)" -}}
{{- end -}}
{{- if and .Values.audit.enabled .Values.audit.strict .Values.audit.windowHours -}}
{{- fail "audit.windowHours leaves older requests unverified, so a strict audit always fails: set it to 0, or audit.strict to false" -}}
{{- end -}}
{{- end -}}

{{/* A duration of the configuration in milliseconds: a number, or numbers with units such as 1d12h. */}}
{{- define "postdate.milliseconds" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "" 1 -}}
{{- if not (regexMatch "^([0-9]+(ms|s|m|h|d)?)+$" .) -}}
{{- fail (printf "%s: with strimzi.topics.create write durations of config.topics as in 7d or 1h30m" .) -}}
{{- end -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d)?" . -1 -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}
