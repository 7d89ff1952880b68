"""Advice from logs: what became of a run, what to make of a growing one, and which setting to try next."""
