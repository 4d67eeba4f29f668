"""Goal: the audit connects to a cluster as the sidecar does, although Spark's client has other property names.

Method: translates settings of librdkafka, and compares the results with the expected properties. Settings without a
translation must be refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from postdate.spark.errors import JobUsageError
from postdate.spark.job.kafka_properties import java_properties


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.Plain"), ("SCRAM-SHA-256", "scram.Scram"), ("SCRAM-SHA-512", "scram.Scram")],
)
def test_a_user_and_password_become_a_login_module(mechanism: str, module: str) -> None:
    given = {
        "sasl.mechanism": mechanism,
        "sasl.username": "u",
        "sasl.password": 'p"\\',
        "security.protocol": "SASL_SSL",
    }
    assert java_properties(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required "
        'username="u" password="p\\"\\\\";',
    }


def test_the_certificates_of_mutual_tls_become_pem_stores(tmp_path: Path) -> None:
    (tmp_path / "crt").write_text("certificate")
    (tmp_path / "key").write_text("key")
    given = {
        "ssl.ca.location": "/ca.crt",
        "ssl.certificate.location": str(tmp_path / "crt"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.key.password": "hunter2",
    }
    assert java_properties(given) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.crt",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "certificate",
        "ssl.keystore.key": "key",
        "ssl.key.password": "hunter2",
    }


def test_properties_without_a_java_counterpart_are_left_out() -> None:
    assert java_properties({"linger.ms": "5", "statistics.interval.ms": "1", "client.rack": "a"}) == {
        "client.rack": "a"
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl.oauthbearer.method": "oidc"}, "Java clients have others for tokens"),
        ({"ssl.certificate.location": "/no/such/file"}, "/no/such/file cannot be read as a PEM file"),
        ({"sasl.username": "u", "sasl.mechanism": "GSSAPI"}, "cannot be used with the mechanism GSSAPI"),
    ],
)
def test_settings_without_a_java_counterpart_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(JobUsageError, match=said):
        java_properties(given)
