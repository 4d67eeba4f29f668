"""librdkafka's names of client settings as those of Kafka's Java clients, which Spark's connector takes.

The two agree on most; the differences that matter for reaching a cluster are below. What has no counterpart in Java is
left out, since the Java client would only warn of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from postdate.connectors.spark.errors import AuditUsageError

_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "metadata.broker.list": "bootstrap.servers",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
_SAME = ("security.protocol", "sasl.", "ssl.truststore.", "ssl.keystore.", "client.", "request.timeout.ms", "socket.")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_properties(librdkafka: Mapping[str, str]) -> dict[str, str]:
    """The settings for a Java client that reaches the same cluster in the same way.

    Raises AuditUsageError for a user name with a mechanism that takes none.
    """
    found: dict[str, str] = {}
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


def _login(mechanism: str, username: str, password: str) -> str:
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise AuditUsageError(f"sasl.username does not go with the mechanism {mechanism}.")
    return f'{module} required username="{_escaped(username)}" password="{_escaped(password)}";'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
