"""The environment of a study that verl trains: vLLM cannot be installed beside the workflow's tools."""

from __future__ import annotations

import os
import sys

from collapse_laws.errors import UserError

GPU_PYTHON = "COLLAPSE_LAWS_GPU_PYTHON"


def enter(trainer: str) -> None:
    """Start the command again with the interpreter that $COLLAPSE_LAWS_GPU_PYTHON names, where verl is the trainer.

    The workflow's rules name one interpreter for all studies: another path in them would be a changed parameter, and
    train again what is there. Returns where nothing is to be done; UserError where the variable names no interpreter.
    """
    python = os.environ.get(GPU_PYTHON)
    if trainer != "verl" or not python:
        return
    if not os.access(python, os.X_OK) or os.path.isdir(python):
        raise UserError(f"{GPU_PYTHON} names {python}, which is no interpreter; allowed: the path of a python.")
    environment = {name: value for name, value in os.environ.items() if name != GPU_PYTHON}  # once is enough
    os.execve(python, [python, "-m", "collapse_laws", *sys.argv[1:]], environment)
