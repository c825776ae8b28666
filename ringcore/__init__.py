"""Exact attention and feedforward layers over one sequence that is spread over many processes."""

from typing import Any

from ringcore.activation import Activation
from ringcore.attention import Residuals, attention, attention_backward, attention_vjp
from ringcore.collectives import reshard
from ringcore.errors import PeerFailed, PeerTimeout, RingError
from ringcore.feedforward import FeedForward, feedforward, feedforward_vjp
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.patterns import (
    causal,
    dense,
    documents,
    full,
    global_tokens,
    keys,
    padding,
    prefix,
    window,
)
from ringcore.protocols import Stats
from ringcore.ring import Ring, run_ranks

__all__ = [
    "Activation",
    "FeedForward",
    "Layout",
    "Mask",
    "Meter",
    "PeerFailed",
    "PeerTimeout",
    "Residuals",
    "Ring",
    "RingError",
    "Stats",
    "attention",
    "attention_backward",
    "attention_vjp",
    "causal",
    "dense",
    "documents",
    "feedforward",
    "feedforward_vjp",
    "full",
    "global_tokens",
    "keys",
    "padding",
    "prefix",
    "reshard",
    "run_ranks",
    "window",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ringcore")
    raise AttributeError(f"module 'ringcore' has no attribute {name!r}")
