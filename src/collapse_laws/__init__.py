"""Stability boundary and collapse clock of asynchronous GRPO."""

__version__ = "0.1.0"
