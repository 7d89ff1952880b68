"""Dictionaries that a log prints over several lines (pprint, indented JSON), joined again, so that a step that stands
last belongs to the metrics above it.
"""

from __future__ import annotations

import re

_MOST_LINES = 200
# an open brace with nothing or whole items behind it; a nested dictionary is a configuration and stays as it is
_OPENING = re.compile(r"[^{}]*+\{\s*+(?:['\"][^{}]*,\s*)?")
_INSIDE = re.compile(r"\s*+(?:['\"][^{}]*+(?:\}[^{}]*+)?|\}[^{}]*+)")


class DictionaryLines:
    """Holds the lines of the dictionary that is open."""

    def __init__(self) -> None:
        self.held: list[str] = []

    def take(self, line: str) -> list[str]:
        """The lines to be parsed now: this one, none while a dictionary is open, or a whole dictionary. Lines that turn
        out to be no dictionary come back one by one.
        """
        if not self.held:
            if "{" in line and _OPENING.fullmatch(line):
                self.held = [line]
                return []
            return [line]
        if not line.strip():
            return []  # of a line that ends with a carriage return and a newline
        if len(self.held) >= _MOST_LINES or not _INSIDE.fullmatch(line):
            released, self.held = self.held, []
            return [*released, *self.take(line)]
        self.held.append(line)
        if "}" not in line:
            return []
        whole, self.held = self.held, []
        return [" ".join(part.strip() for part in whole)]
