"""TensorBoard event files, through TensorBoard's own reader (extra `logs`).

A directory may hold several event files: those of one run, resumed, are read in the order of their times.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.logs.keys import role_of
from collapse_laws.logs.table import MetricTable


def is_event_file(head: bytes) -> bool:
    """Whether a file begins with TensorBoard's first record, which names the format's version."""
    return b"brain.Event:" in head[:64]


def event_files(directory: Path) -> list[Path]:
    """Event files of a directory and those below it."""
    return sorted(path for path in directory.rglob("*tfevents*") if path.is_file())


def read_events(files: list[Path], table: MetricTable) -> list[str]:
    """Fill the table with the scalars of event files of one run; one row a step of a file. Returns notes.

    UserError where TensorBoard is not installed, or where the files lie in several directories that each hold a reward.
    """
    try:
        with warnings.catch_warnings():  # its protobuf and distutils warnings are none of the user's business
            warnings.simplefilter("ignore")
            from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
            from tensorboard.util import tensor_util
    except ImportError:
        raise UserError(
            "TensorBoard event files need the package tensorboard: pip install 'collapse-laws[logs]'."
        ) from None
    per_directory: dict[Path, bool] = {}
    for path in files:
        steps: dict[int, dict[str, float]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for event in LegacyEventFileLoader(str(path)).Load():
                for value in event.summary.value:
                    number = _scalar(value, tensor_util)
                    if number is not None:
                        steps.setdefault(event.step, {})[value.tag] = number
        holds = any((found := role_of(tag)) and found[0] == "reward" for row in steps.values() for tag in row)
        per_directory[path.parent] = per_directory.get(path.parent, False) or holds
        if sum(per_directory.values()) > 1:
            listed = ", ".join(str(directory) for directory, has in per_directory.items() if has)
            raise UserError(f"event files of several runs were found; name one directory: {listed}.")
        for step, row in steps.items():
            table.add({"step": float(step), **row})
    return [f"{len(files)} event files, read in the order of their times"] if len(files) > 1 else []


def _scalar(value: object, tensor_util: object) -> float | None:
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]
    if kind == "simple_value":
        return float(value.simple_value)  # type: ignore[attr-defined]
    if kind == "tensor":
        array = tensor_util.make_ndarray(value.tensor)  # type: ignore[attr-defined]
        if array.size == 1 and array.dtype.kind in "fiu":
            return float(array.reshape(()))
    return None
