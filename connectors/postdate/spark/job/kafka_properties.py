"""Translates librdkafka's client properties to those of Kafka's Java clients, which Spark's connector uses.

Most names agree; this module has the differences that matter for reaching a cluster. It drops all properties that it
does not know, since the Java client would only log a warning.
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
    """Returns the settings for a Java client that reaches the same cluster with the same credentials.

    Raises JobUsageError for a user name with a mechanism other than PLAIN and SCRAM, for a certificate that cannot be
    read, and for tokens of an identity provider, which the two kinds of clients configure in incompatible ways.
    """
    if any(name.startswith("sasl.oauthbearer.") for name in librdkafka):
        raise JobUsageError(
            "sasl.oauthbearer.… are settings of librdkafka, and Java clients have others for tokens. Run the job with "
            "spark-submit, and give these with -F FILE (docs/pipeline.md)."
        )
    settings = _own_certificate(librdkafka)
    for name, value in librdkafka.items():
        if name in ("sasl.username", "sasl.password"):
            continue
        if name == "ssl.ca.location":
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}
        elif name in _RENAMED:
            settings[_RENAMED[name]] = value
        elif name.startswith(_SAME):
            settings[name] = value
    if "sasl.username" in librdkafka:
        settings["sasl.jaas.config"] = _login(
            settings.get("sasl.mechanism", "PLAIN"), librdkafka["sasl.username"], librdkafka.get("sasl.password", "")
        )
    return settings


def _own_certificate(librdkafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the client certificate for mutual TLS. librdkafka gets the names of two files, and the
    Java client gets their contents."""
    files = {
        "ssl.keystore.certificate.chain": librdkafka.get("ssl.certificate.location"),
        "ssl.keystore.key": librdkafka.get("ssl.key.location"),
    }
    settings = {"ssl.keystore.type": "PEM"} if any(files.values()) else {}
    for name, path in files.items():
        if path is None:
            continue
        try:
            settings[name] = Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise JobUsageError(f"{path} cannot be read as a PEM file: {error}") from error
    if "ssl.key.password" in librdkafka:
        settings["ssl.key.password"] = librdkafka["ssl.key.password"]
    return settings


def _login(mechanism: str, username: str, password: str) -> str:
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise JobUsageError(f"sasl.username cannot be used with the mechanism {mechanism}.")
    return f'{module} required username="{_escaped(username)}" password="{_escaped(password)}";'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
