"""The failures of Kafka, classified by what the caller does next.

No exception of the client library leaves this package. Every error that it raises or reports becomes one of these::

    KafkaFault                 .code (librdkafka's number), .retriable
      SettingRefused           a client property that would break the protocol, or does not exist: correct it, restart
        UnsupportedByBroker    ... because the brokers are too old for it
      NotAuthorized            credentials, TLS or ACLs: an operator must change something
      Fenced                   another producer holds the transactional id: stop acting, read the log before a new init
      FatalClient              this client instance is unusable: destroy it and create a new one
        NameInUse              ... because another member has its static name: join again once that member has left
        OtherProtocol          ... because members use the classic protocol: join again once they have left
      UnknownOutcome           a commit or abort may or may not have happened: destroy the producer, let the log decide
      AbortRequired            the transaction cannot commit: abort(), then isolate the entry or retry
        RecordRejected         ... because of one record (unknown topic, too large, not authorized for its topic)
      OffsetOutOfRange         the offset is not in the log: nothing was read; compare with the log's bounds
      Unreachable              no broker or coordinator answers: try again later
        Retriable              the same call may succeed if repeated at once
      DevBrokerFailed          the development broker cannot start: the message names the remedy on this machine

`classification.classify` maps the library's errors to this tree. Thread rule: plain values; any thread may use them.
"""

from __future__ import annotations


class KafkaFault(Exception):
    """Any failure of Kafka or of its client. `str()` is a message for the user, `code` is librdkafka's error number."""

    #: Whether repeating the same call, unchanged, may succeed.
    retriable = False

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class SettingRefused(KafkaFault):
    """A client property is unknown, malformed, or would break the protocol. The message names it and the reason."""


class UnsupportedByBroker(SettingRefused):
    """The brokers do not support what a setting requires. The message names the setting."""


class NotAuthorized(KafkaFault):
    """The cluster refuses these credentials or the TLS handshake, or an ACL for this resource is missing."""


class Fenced(KafkaFault):
    """A newer producer has taken this transactional id: this one cannot commit any more."""


class FatalClient(KafkaFault):
    """The client instance is unusable; create a new one."""


class NameInUse(FatalClient):
    """Another member of the group has this static name, or had it and its session has not timed out yet."""


class OtherProtocol(FatalClient):
    """The group has members of the protocol classic, and the broker cannot convert the group until they have left."""


class UnknownOutcome(KafkaFault):
    """A commit or an abort may have happened or not; the caller must fence again and read the log."""


class AbortRequired(KafkaFault):
    """The open transaction can only be aborted; the producer is usable afterwards."""


class RecordRejected(AbortRequired):
    """One record cannot be produced to its target: topic or partition unknown, record too large, invalid, or forbidden.

    Raised by `produce`, or found in a delivery report. In the second case, the transaction must be aborted.
    """


class OffsetOutOfRange(KafkaFault):
    """A reader's offset is below the start or above the end of its partition. No record was skipped."""


class Unreachable(KafkaFault):
    """No answer from the cluster within the time allowed."""

    retriable = True


class Retriable(Unreachable):
    """A transient condition (leader moving, coordinator loading, transaction still ending): repeat the same call."""


class DevBrokerFailed(KafkaFault):
    """The local development broker could not be prepared or started; the message names the remedy."""
