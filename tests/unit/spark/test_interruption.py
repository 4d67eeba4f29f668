"""Goal: a signal ends an audit with an interruption, whatever error PySpark's clean-up raises.

Method: sends signals to the test process inside the context, and raises errors there.
"""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from postdate.spark.session.interruption import interruptible, is_interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_error_during_an_interruption_does_not_hide_it(number: signal.Signals) -> None:
    def cut_off() -> None:
        try:
            signal.raise_signal(number)
        finally:
            raise RuntimeError("the bridge is cut")

    with pytest.raises(KeyboardInterrupt), interruptible():
        cut_off()


def test_an_interruption_that_was_swallowed_is_raised_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_unrelated_error_is_unchanged_and_the_next_context_starts_fresh() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGINT)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="not interrupted: False"), interruptible():
        raise RuntimeError(f"not interrupted: {is_interrupted()}")
    assert signal.getsignal(signal.SIGTERM) is before
