"""The errors of the sidecar, grouped by consequence: the class determines what the caller does next.

    PostdateError                   exit 1
    ├── ConfigError                 exit 2   fix the configuration or the command and start again
    ├── TransientError              exit 1   retry, with a deadline; past the deadline it is a failure
    ├── ShardFenced                 exit 3   stop acting for the shard; the process ends with 3 when it was the last
    ├── ClientFailed                exit 6   the group's client failed repeatedly; end the process
    ├── Contradicted                         rebuild the index from the topics; never leaves the takeover
    └── Halted                      exit 1   the shard stops; an operator must act, as the message describes
    RequestRefused (wire)                    end the request as a dead letter with its reason; never stops a shard

The errors of the other packages are mapped into this tree where they enter the sidecar:

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

    An audit, which does not import this package, also ends with 3 if messages were later than a bound allows, and is
    the only command that ends with 5.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    FENCED = 3
    VIOLATION = 4
    UNVERIFIED = 5
    CLIENT_FAILED = 6


class PostdateError(Exception):
    """The base of all errors of the sidecar; its text is one sentence or more for the person who runs it."""

    exit_code: Exit = Exit.FAILED


class ConfigError(PostdateError):
    """The configuration or the state of the topics prevents the start; fix it and start again."""

    exit_code = Exit.USAGE


class TransientError(PostdateError):
    """A failure that may not recur: the caller retries until a deadline, then reports it."""


class ShardFenced(PostdateError):
    """Another process acts for the shard now; this process must stop acting for it at once and write nothing more."""

    exit_code = Exit.FENCED


class Contradicted(PostdateError):
    """The dispatch log decided a control differently than this index: the index must be rebuilt from the topics."""


class ClientFailed(PostdateError):
    """The client in the group failed several times in a row; the process ends, and the message names the remedy."""

    exit_code = Exit.CLIENT_FAILED


class HaltReason(StrEnum):
    """The reason why a shard stopped permanently. Closed: each reason has an entry in the runbook."""

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
"""After one of these halts, a shard must keep its index: only the index knows the records that Kafka has lost, and
after a rebuild their messages would be delivered again."""


EVIDENT = frozenset({HaltReason.NEWER_FORMAT, HaltReason.FOREIGN_RECORD, HaltReason.INTERNAL})
"""These halts need no confirmation: a record that was read shows them, or a defect causes them. The others, or their
ranges, depend on a broker's answer and are confirmed."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss that a shard must accept to continue: the records at offsets [first, end) of its partition of `topic`.

    `seq`, `since`: the state of the dispatch log when the loss was found, as far as the reason needs it: the seq of its
    last record and its start offset, or after a break of `seq` those of the record at the break. If the range ends at
    the present end of the request topic, an acceptance also covers a later end while both are unchanged.
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

    `loss`: the loss that the operator must accept to let the shard continue; None if no acceptance makes that safe.
    """

    def __init__(self, reason: HaltReason, detail: str, loss: Loss | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.loss = loss


def consequence_of(fault: kafka_errors.KafkaFault) -> PostdateError:
    """Returns the error of this tree for a Kafka fault in a whole process or command, with the same text.

    A shard does not use it for its own transactions: it reacts to the fault itself.
    """
    if isinstance(fault, kafka_errors.SettingRefused | kafka_errors.NotAuthorized):
        return ConfigError(str(fault))
    if isinstance(fault, kafka_errors.Fenced):
        return ShardFenced(str(fault))
    if isinstance(fault, kafka_errors.OffsetOutOfRange):
        return Halted(HaltReason.REQUESTS_TRUNCATED, str(fault))
    return TransientError(str(fault))
