"""The errors of the sidecar, grouped by consequence: the class determines what the caller does next.

    PostdateError                   exit 1
    ├── ConfigError                 exit 2   fix the configuration or the command and start again
    ├── TransientError              exit 1   retry, with a deadline; past the deadline it is a failure
    ├── ShardFenced                 exit 3   the Kafka client of a command was fenced; end the command
    ├── ClientFailed                exit 6   the group consumer failed repeatedly; end the process
    ├── Contradicted                         rebuild the index from the topics; never leaves the takeover
    └── Halted                      exit 1   the shard stops; an operator must act, as the message describes
    RequestRefused (wire)                    end the request as a dead letter with its reason; never stops a shard

If a fault of Kafka ends a command, `consequence_of` maps it to this tree:

    kafka             SettingRefused, NotAuthorized, DevBrokerFailed        -> ConfigError
                      Fenced                                                -> ShardFenced
                      OffsetOutOfRange                                      -> Halted
                      Unreachable, Retriable, AbortRequired, RecordRejected,
                      UnknownOutcome, FatalClient                           -> TransientError
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from postdate.kafka import errors as kafka_errors


class Exit(IntEnum):
    """The exit codes of the commands; the table in docs/operations.md describes each.

    An audit does not import this package. It also ends with 3, if messages were later than `--fail-on-lateness` allows,
    and it is the only command that ends with 5.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    FENCED = 3
    VIOLATION = 4
    UNVERIFIED = 5
    CLIENT_FAILED = 6


class PostdateError(Exception):
    """The base of all errors of the sidecar. The text of an error is a message for the operator."""

    exit_code: Exit = Exit.FAILED


class ConfigError(PostdateError):
    """The configuration or the state of the topics prevents the start; fix it and start again."""

    exit_code = Exit.USAGE


class TransientError(PostdateError):
    """A failure that may not recur: the caller retries until a deadline, then reports it."""


class ShardFenced(PostdateError):
    """The Kafka client of a command was fenced: another client has its id, and the command must write nothing more."""

    exit_code = Exit.FENCED


class Contradicted(PostdateError):
    """The dispatch log and this index contradict each other: the index must be rebuilt from the topics."""


class ClientFailed(PostdateError):
    """The group consumer failed several times in a row; the process ends, and the message names the remedy."""

    exit_code = Exit.CLIENT_FAILED


class HaltReason(StrEnum):
    """The reason why a shard halted. The set is closed: each reason has an entry in the runbook."""

    TOPIC_RECREATED = "topic-recreated"
    REQUESTS_TRUNCATED = "requests-truncated"
    REQUESTS_LOST = "requests-lost"
    DISPATCH_LOG_TRUNCATED = "dispatch-log-truncated"
    DISPATCH_LOG_EMPTY = "dispatch-log-empty"
    FATES_MISSING = "fates-missing"
    LOW_WATER_OUTSIDE = "low-water-outside"
    SEQ_BROKEN = "seq-broken"
    NEWER_FORMAT = "newer-format"
    FOREIGN_RECORD = "foreign-record"
    TOPIC_RULES = "topic-rules"
    INTERNAL = "internal"


IRREPLACEABLE = frozenset({HaltReason.REQUESTS_TRUNCATED, HaltReason.DISPATCH_LOG_TRUNCATED})
"""After one of these halts, a shard must keep its index, since only the index knows the requests or fates that Kafka
has lost. After a rebuild, messages would be lost or delivered again."""


EVIDENT = frozenset({HaltReason.NEWER_FORMAT, HaltReason.FOREIGN_RECORD, HaltReason.INTERNAL})
"""These halts need no confirmation: a record that was read shows them, or a defect causes them. Any other halt depends
on a broker's answer, or its range does. So it is confirmed, unless it repeats the last halt of the shard."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss that an operator must accept to let a shard continue: offsets [first, end) of its partition of `topic`.

    `seq`, `since`: the state of the dispatch log when the loss was found. If the log was empty, `since` is its start
    offset. After a break of `seq`, they are the seq and the offset of the record at the break. With these two reasons
    the range may end at the present end of the request topic, and an acceptance also covers a later end while both
    values are unchanged.
    """

    reason: HaltReason
    topic: str
    first: int
    end: int
    seq: int = 0
    since: int = 0

    @property
    def range(self) -> str:
        """The offsets as the command line takes them."""
        return f"{self.first}-{self.end}"


class Halted(PostdateError):
    """The shard cannot continue without risking a loss or a duplicate. Its index is kept, and an operator must decide.

    `loss`: the loss that the operator must accept to let the shard continue; None if accepting a loss does not help.
    """

    def __init__(self, reason: HaltReason, detail: str, loss: Loss | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.loss = loss


def consequence_of(fault: kafka_errors.KafkaFault) -> PostdateError:
    """Returns the error of this tree for a Kafka fault that ends a command, with the same text.

    A shard does not call this function: it reacts to the fault itself.
    """
    if isinstance(fault, kafka_errors.SettingRefused | kafka_errors.NotAuthorized):
        return ConfigError(str(fault))
    if isinstance(fault, kafka_errors.Fenced):
        return ShardFenced(str(fault))
    if isinstance(fault, kafka_errors.OffsetOutOfRange):
        return Halted(HaltReason.REQUESTS_TRUNCATED, str(fault))
    return TransientError(str(fault))
