"""Named random generators: one a purpose, derived from (purpose, seed, index) and never from S or eta [declared].

Two cells of one seed therefore see the same prompts and, at the same weights, sample the same
responses at update t.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch

PURPOSES = ("init", "demonstrations", "data", "rollout", "validation", "probe")


def generator(purpose: str, seed: int, index: int = 0) -> torch.Generator:
    """A CPU generator of its own for (purpose, seed, index); ValueError for an unnamed purpose."""
    if purpose not in PURPOSES:
        raise ValueError(f"purpose {purpose!r}; allowed: {', '.join(PURPOSES)}")
    entropy = (zlib.crc32(purpose.encode()), seed, index)
    state = np.random.SeedSequence(entropy).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))
