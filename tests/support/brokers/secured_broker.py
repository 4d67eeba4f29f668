"""A broker with TLS, SASL and ACLs for tests; authenticated users start without any right.

It has three kinds of listeners: PLAINTEXT, whose anonymous clients are super users, for the test itself; SASL_SSL with
PLAIN, SCRAM-SHA-512 and OAUTHBEARER, whose tokens a local endpoint issues; and mTLS. Every other user needs an ACL for
each operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark its re-exports
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from postdate.sidecar.cluster.rights import GROUP, TRANSACTIONAL_ID, Right
from postdate.tools.dev_broker.local_broker import LocalBroker
from support.brokers.certificates import KEY_PASSWORD, Authority
from support.brokers.token_endpoint import AUDIENCE, ISSUER, TokenEndpoint, token_endpoint
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until
from support.waiting.timeouts import WAIT_TIMEOUT_S

PASSWORD = "swordfish-plain"  # noqa: S105 - of a broker that lives as long as a test
SCRAM_PASSWORD = "swordfish-scram"  # noqa: S105
CLIENT_SECRET = "swordfish-oauth"  # noqa: S105
USER = "postdate"

_LOGIN = "org.apache.kafka.common.security"
_RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


class Certificates:
    """A certificate authority, the broker's certificate for 127.0.0.1, and a client's certificate; all PEM files.

    The client's key is encrypted with KEY_PASSWORD.
    """

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        self.ca = authority.ca
        key, certificate = authority.issue("broker", "IP:127.0.0.1")
        self.broker = directory / "broker.pem"
        self.broker.write_text(key.read_text() + certificate.read_text())
        key, self.client = authority.issue(USER, "DNS:client")
        self.client_key = authority.encrypted(key)


@dataclass(frozen=True)
class SecuredBroker:
    """A broker, its listeners, and the operations of its super user for a test."""

    broker: LocalBroker
    sasl_servers: str
    tls_servers: str
    certificates: Certificates
    tokens: TokenEndpoint
    admin: AdminClient

    @property
    def super_servers(self) -> str:
        """The address of the listener whose clients may do everything."""
        return self.broker.bootstrap_servers

    def sasl(self, mechanism: str, directory: Path, password: str) -> dict[str, str]:
        """Returns the properties of a client that authenticates as USER with a password from a file."""
        file = directory / f"password-{mechanism.lower()}"
        file.write_text(f"{password}\n")
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password.file": str(file),
        }

    def oauth(self, directory: Path, secret: str = CLIENT_SECRET) -> dict[str, str]:
        """Returns the properties of a client that authenticates as USER with a token; the client secret is in a
        file."""
        file = directory / "client-secret"
        file.write_text(f"{secret}\n")
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret.file": str(file),
            "https.ca.location": str(self.certificates.ca),
        }

    def mutual_tls(self, directory: Path) -> dict[str, str]:
        """Returns the properties of a client whose certificate names USER."""
        file = directory / "key-password"
        file.write_text(f"{KEY_PASSWORD}\n")
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "ssl.certificate.location": str(self.certificates.client),
            "ssl.key.location": str(self.certificates.client_key),
            "ssl.key.password.file": str(file),
        }

    def set_scram_password(self, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(WAIT_TIMEOUT_S)

    def grant(self, rights: list[Right]) -> None:
        bindings = [_binding(right) for right in rights]
        for future in self.admin.create_acls(bindings).values():
            future.result(WAIT_TIMEOUT_S)
        self._wait_for_acls(bindings, there=True)

    def revoke(self, right: Right) -> None:
        binding = _binding(right)
        for future in self.admin.delete_acls([_filter(binding)]).values():
            assert len(future.result(WAIT_TIMEOUT_S)) == 1, f"there was no ACL for {right}"
        self._wait_for_acls([binding], there=False)

    def _wait_for_acls(self, bindings: list[AclBinding], *, there: bool) -> None:
        """Waits for the authorizer: it applies the changes of the controller with a delay."""
        for binding in bindings:
            wait_until(
                lambda binding=binding: (
                    bool(self.admin.describe_acls(_filter(binding)).result(WAIT_TIMEOUT_S)) is there
                ),  # type: ignore[misc]
                f"{binding} is {'there' if there else 'gone'}",
            )


def _binding(right: Right) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    kind = _RESOURCES.get(right.resource, ResourceType.TOPIC)
    operation, allow = _OPERATIONS[right.operation.value], AclPermissionType.ALLOW
    return AclBinding(kind, right.name, pattern, f"User:{USER}", "*", operation, allow)


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


@contextmanager
def secured_broker(directory: Path) -> Iterator[SecuredBroker]:
    """Yields a new broker, which is killed when the context exits."""
    certificates = Certificates(directory)
    sasl_port, tls_port, controller_port, port = (free_port() for _ in range(4))
    with token_endpoint(directory, certificates.broker, USER, CLIENT_SECRET) as tokens:
        properties = _properties(certificates, port, sasl_port, tls_port, controller_port) | _oauth(tokens)
        broker = LocalBroker(port, directory / "broker", properties=properties)
        with pytest.MonkeyPatch.context() as patch:  # the only URL that Kafka's JVM may read
            patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.jwks}")
            broker.start(WAIT_TIMEOUT_S)
        try:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            servers = (f"127.0.0.1:{sasl_port}", f"127.0.0.1:{tls_port}")
            made = SecuredBroker(broker, *servers, certificates, tokens, admin)
            made.set_scram_password(SCRAM_PASSWORD)
            yield made
        finally:
            broker.kill()  # its data is not needed again


def _oauth(tokens: TokenEndpoint) -> dict[str, str]:
    """Returns the broker's settings for tokens: Kafka's own validator with the endpoint's key."""
    given = {
        "sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.server.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": tokens.jwks,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    return {f"listener.name.sasl_ssl.oauthbearer.{name}": value for name, value in given.items()}


def _properties(
    certificates: Certificates, port: int, sasl_port: int, tls_port: int, controller_port: int
) -> dict[str, str]:
    ways = f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{sasl_port},SSL://127.0.0.1:{tls_port}"
    sasl = "listener.name.sasl_ssl"
    return {
        "listeners": f"{ways},CONTROLLER://localhost:{controller_port}",
        "advertised.listeners": ways,
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl}.plain.sasl.jaas.config": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        f"{sasl}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    }
