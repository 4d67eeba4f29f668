"""What a person has agreed to lose, so that a halted shard may go on; and what of it was made use of.

A loss is named by a halt and accepted by `postdate shard resume --accept-loss FIRST-END`. It holds for that halt alone:
where the takeover that follows finds another loss, or a larger one, the shard halts anew and names that.

Nothing is ever delivered twice because of an acceptance: what is given up is not delivered, even where it might have
been right to. Each use is logged as an error and written into the dispatch log, with the next owner record.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

import logging

from postdate.sidecar.errors import Halted, HaltReason, Loss

log = logging.getLogger(__name__)

# Here the end of the range is the end of the request topic at the time, which moves on; what came since is safe as long
# as the dispatch log has no newer record, and has lost no older one: nobody can have ended it.
_OPEN_ENDED = frozenset({HaltReason.FATES_MISSING, HaltReason.DISPATCH_LOG_EMPTY})


class Acceptance:
    """What was accepted for the takeover under way: one halt may follow another.

    `used`: what this attempt went on in spite of. The owner record names all that was accepted: an attempt before this
    one may have made use of it and failed later.
    """

    def __init__(self, accepted: tuple[Loss, ...] = ()) -> None:
        self.accepted = accepted
        self.used: list[Loss] = []

    def covering(self, loss: Loss) -> Loss | None:
        """What a person has agreed to lose, where that includes this loss; else None."""
        for accepted in self.accepted:
            if (accepted.reason, accepted.topic) != (loss.reason, loss.topic) or loss.first < accepted.first:
                continue
            unchanged = (loss.seq, loss.since) == (accepted.seq, accepted.since)
            if loss.end <= accepted.end or (loss.reason in _OPEN_ENDED and unchanged):
                return accepted
        return None

    def take(self, shard: str, loss: Loss, detail: str) -> Loss:
        """The loss as it was accepted, which is noted. Raises Halted with `detail` where it was not."""
        accepted = self.covering(loss)
        if accepted is None:
            raise Halted(loss.reason, detail, loss)
        if accepted not in self.used:
            self.used.append(accepted)
            log.error("shard %s: ACCEPTED LOSS of offsets %s of %s: %s", shard, accepted.range, loss.topic, detail)
        return accepted

    def skips(self, topic: str, offset: int) -> bool:
        """True for a record that is nobody's, and that a person has agreed to pass over; the use is noted."""
        accepted = self.covering(Loss(HaltReason.FOREIGN_RECORD, topic, offset, offset + 1))
        if accepted is not None and accepted not in self.used:
            self.used.append(accepted)
            log.error("ACCEPTED: the record at offset %d of %s is nobody's and is passed over", offset, topic)
        return accepted is not None
