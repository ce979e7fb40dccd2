"""The only access to time, randomness and ids: nothing else in the package may read a clock or draw a random number.

Tests and simulations replace these functions, so that one seed replays everything. Lint enforces the rule.
"""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime

Chance = random.Random
"""A source of chance that begins where a seed says."""


def now() -> datetime:
    """Return the local wall clock, aware, UTC. For display only: nothing may be deleted or ordered by it."""
    return datetime.now(UTC)


monotonic_s = time.monotonic
"""Seconds on a clock that never goes back; only differences mean something."""


def sleep(seconds: float) -> None:
    """Wait; a simulation advances its own clock instead."""
    time.sleep(seconds)


def jitter_s(limit_s: float) -> float:
    """Return a random wait in [0, limit_s): full jitter, so that writers that lost one race do not collide again."""
    return random.random() * limit_s  # noqa: S311 - spreads retries, guards nothing


def chance(seed: int | None) -> Chance:
    """Return a random generator; the same seed gives the same sequence, None a new one."""
    return Chance(seed)


def random_token() -> str:
    """128 random bits as 32 hex digits."""
    return os.urandom(16).hex()


def new_id() -> str:
    """Return a UUIDv7 (RFC 9562, 5.7) as text: 48 bits of milliseconds, then random bits.

    Its time is a hint for people who list a bucket; no code may depend on it.
    """
    milliseconds = int(time.time() * 1000)
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
