"""The failures of Kafka, classified by what the caller does next.

No exception of the client library leaves this package. Every error that it raises or reports becomes one of these::

    KafkaFault                 .code (librdkafka's number), .retriable
      SettingRefused           a wrong client property, or a change that the cluster refuses: correct the setting
        UnsupportedByBroker    ... because the brokers are too old for it
      NotAuthorized            credentials, TLS or ACLs: an operator must change something
      Fenced                   another client has the transactional id or static name: stop, read the log before init
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
    """A client property is unknown, malformed, or would break the protocol, or the cluster refuses a requested change.
    The message names the setting and the reason."""


class UnsupportedByBroker(SettingRefused):
    """The brokers do not support what a setting requires. The message names the setting."""


class NotAuthorized(KafkaFault):
    """The cluster refuses these credentials or the TLS handshake, or an ACL for this resource is missing."""


class Fenced(KafkaFault):
    """A newer client has taken this transactional id, or the name of this static member. A fenced producer cannot
    commit any more."""


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

    If `produce` raises it, the transaction is still sound. If a delivery report contains it, or `commit` raises it, the
    transaction must be aborted. `Admin` raises it for a partition that does not exist.
    """


class OffsetOutOfRange(KafkaFault):
    """A reader's offset is below the start or above the end of its partition. No record was skipped."""


class Unreachable(KafkaFault):
    """The cluster cannot be reached or did not answer in time, or its error has no more precise class and leaves the
    client usable."""

    retriable = True


class Retriable(Unreachable):
    """A transient condition (leader moving, coordinator loading, transaction still ending): repeat the same call."""


class DevBrokerFailed(KafkaFault):
    """The local development broker could not be prepared or started; the message names the remedy."""
