"""Creates the Kafka client for a configuration; the only module of the sidecar that chooses an implementation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import SettingRefused
from postdate.kafka.interface import Admin, Kafka
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.cluster.connection_errors import answered
from postdate.sidecar.config.loader import require_bootstrap
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import ConfigError


def kafka_of(config: Config) -> Kafka:
    """Returns the cluster that `config` names; makes no connection yet. Raises ConfigError if no broker is given, or a
    property is refused."""
    require_bootstrap(config)
    kafka = config.kafka
    try:
        return ConfluentKafka(
            KafkaSettings(
                bootstrap_servers=kafka.bootstrap_servers,
                common=dict(kafka.common),
                consumer=dict(kafka.consumer),
                producer=dict(kafka.producer),
                admin=dict(kafka.admin),
                reader_group_id=config.group_id,
                group_protocol=config.group_protocol,
            )
        )
    except SettingRefused as error:
        raise ConfigError(str(error)) from error


def wait_for_answer(kafka: Kafka, admin: Admin) -> None:
    """Returns once the cluster has answered. Raises KafkaFault if it does not; known causes are printed on stderr."""
    answered(
        admin.cluster_id, kafka.connection_fault, lambda text: print(f"warning: {text}", file=sys.stderr, flush=True)
    )


@contextmanager
def admin_of(kafka: Kafka) -> Iterator[Admin]:
    """Provides an admin client once the cluster has answered, and closes it.

    Raises KafkaFault if the cluster does not answer; known causes are printed on stderr.
    """
    admin = kafka.admin()
    try:
        wait_for_answer(kafka, admin)
        yield admin
    finally:
        admin.close()
