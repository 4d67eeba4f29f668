"""Accepted losses: the losses that an operator has accepted so that a halted shard may continue, and their use.

A halt names a loss, and `postdate shard resume --accept-loss FIRST-END` accepts it. The acceptance covers that loss and
any part of it; with a reason in `_OPEN_ENDED` it also covers later requests. If the next takeover finds a loss that no
acceptance covers, the shard halts again and names that loss.

An acceptance never causes a duplicate: a request that is given up is no longer delivered, even if it was not delivered
before. The first use of an acceptance in a takeover is logged as an error. The next owner record lists all accepted
losses.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

import logging

from postdate.sidecar.errors import Halted, HaltReason, Loss

log = logging.getLogger(__name__)

# With these reasons of a halt, the range may end at the present end of the request topic, which grows. As long as the
# dispatch log has no newer record and has lost no older one, no owner can have ended later requests, so the acceptance
# also covers these. After a break of `seq`, the takeover reads the later records, so only the break must be the same.
_OPEN_ENDED = frozenset({HaltReason.DISPATCH_LOG_EMPTY, HaltReason.SEQ_BROKEN})


class AcceptedLosses:
    """The accepted losses for the present takeover. There may be several, since one halt may follow another.

    `used`: the losses that this attempt has used. The owner record names all accepted losses, since an earlier attempt
    may have used one and failed later.
    """

    def __init__(self, accepted: tuple[Loss, ...] = ()) -> None:
        self.accepted = accepted
        self.used: list[Loss] = []

    def covering(self, loss: Loss) -> Loss | None:
        """Returns the accepted loss that includes `loss`; None if there is none."""
        for accepted in self.accepted:
            if (accepted.reason, accepted.topic) != (loss.reason, loss.topic) or loss.first < accepted.first:
                continue
            unchanged = (loss.seq, loss.since) == (accepted.seq, accepted.since)
            if loss.end <= accepted.end or (loss.reason in _OPEN_ENDED and unchanged):
                return accepted
        return None

    def require(self, shard: str, loss: Loss, detail: str) -> Loss:
        """Returns the accepted loss and records its use. Raises Halted with `detail` if the loss was not accepted."""
        accepted = self.covering(loss)
        if accepted is None:
            raise Halted(loss.reason, detail, loss)
        if accepted not in self.used:
            self.used.append(accepted)
            log.error("shard %s: ACCEPTED LOSS of offsets %s of %s: %s", shard, accepted.range, loss.topic, detail)
        return accepted

    def skips(self, topic: str, offset: int) -> bool:
        """True for a foreign record that an operator has agreed to skip; records the use."""
        accepted = self.covering(Loss(HaltReason.FOREIGN_RECORD, topic, offset, offset + 1))
        if accepted is not None and accepted not in self.used:
            self.used.append(accepted)
            log.error("ACCEPTED: the foreign record at offset %d of %s is skipped", offset, topic)
        return accepted is not None
