"""How long to wait before the next try: exponential, with full jitter."""

from __future__ import annotations

import random

#: The most that the first wait may take, in seconds.
FIRST = 0.2
#: The most that any wait may take.
LONGEST = 5.0
#: The least that any wait takes, so that no loop spins.
LEAST = 0.02


class Backoff:
    """The waits of one series of failures."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self) -> float:
        """The wait after one more failure: anything up to a bound that doubles from 0.2 s to 5 s."""
        bound = min(FIRST * (1 << min(self._failures, 10)), LONGEST)
        self._failures += 1
        return max(random.random() * bound, LEAST)

    def reset(self) -> None:
        """Something worked: the next series begins anew."""
        self._failures = 0
