"""Translates librdkafka's client properties to those of Kafka's Java clients, which Spark's connector uses.

Most names agree; the differences that matter for reaching a cluster are below. Properties without a Java counterpart
are dropped, since the Java client would only log a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from postdate.spark.errors import JobUsageError

_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "metadata.broker.list": "bootstrap.servers",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
_SAME = (
    "security.protocol",
    "sasl.",
    "ssl.truststore.",
    "ssl.keystore.",
    "client.",
    "request.timeout.ms",
    "socket.",
    "max.poll.records",
    "max.partition.fetch.bytes",
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_properties(librdkafka: Mapping[str, str]) -> dict[str, str]:
    """The settings for a Java client that reaches the same cluster in the same way.

    Raises JobUsageError for a user name with a mechanism that takes none, for a certificate that cannot be read, and
    for tokens of an identity provider, which the two kinds of clients configure in incompatible ways.
    """
    if any(name.startswith("sasl.oauthbearer.") for name in librdkafka):
        raise JobUsageError(
            "sasl.oauthbearer.… are settings of librdkafka, and Java clients have others for tokens. Run the job with "
            "spark-submit, and give these with -F FILE (docs/pipeline.md)."
        )
    found = _own_certificate(librdkafka)
    for name, value in librdkafka.items():
        if name in ("sasl.username", "sasl.password"):
            continue
        if name == "ssl.ca.location":
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}
        elif name in _RENAMED:
            found[_RENAMED[name]] = value
        elif name.startswith(_SAME):
            found[name] = value
    if "sasl.username" in librdkafka:
        found["sasl.jaas.config"] = _login(
            found.get("sasl.mechanism", "PLAIN"), librdkafka["sasl.username"], librdkafka.get("sasl.password", "")
        )
    return found


def _own_certificate(librdkafka: Mapping[str, str]) -> dict[str, str]:
    """Our client certificate for mutual TLS: two files in librdkafka, two texts in Java."""
    files = {
        "ssl.keystore.certificate.chain": librdkafka.get("ssl.certificate.location"),
        "ssl.keystore.key": librdkafka.get("ssl.key.location"),
    }
    found = {"ssl.keystore.type": "PEM"} if any(files.values()) else {}
    for name, path in files.items():
        if path is None:
            continue
        try:
            found[name] = Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise JobUsageError(f"{path} cannot be read as a PEM file: {error}") from error
    if "ssl.key.password" in librdkafka:
        found["ssl.key.password"] = librdkafka["ssl.key.password"]
    return found


def _login(mechanism: str, username: str, password: str) -> str:
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise JobUsageError(f"sasl.username cannot be used with the mechanism {mechanism}.")
    return f'{module} required username="{_escaped(username)}" password="{_escaped(password)}";'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
