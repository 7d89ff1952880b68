"""Adapters of foreign logs: whatever a trainer wrote becomes a run record and a statement of what was read."""

from collapse_laws.logs.reader import FORMATS, ReadLog, read_log

__all__ = ["FORMATS", "ReadLog", "read_log"]
