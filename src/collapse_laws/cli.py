"""The command line `collapse-laws`: a table of commands, each a module of `collapse_laws.commands`.

A command module has `configure(parser)` and `run(args) -> int`; its docstring's first line is its
help. Modules are imported only when their command is asked for, so that `diagnose` never waits for
PyTorch.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from collapse_laws import __version__
from collapse_laws.errors import UserError

COMMANDS = {
    "cells": "list the cells of a study, or refresh workflow/cells.yaml",
    "warmstart": "make the starting checkpoint of a study's model",
    "train": "train one cell with the local learner or with verl",
    "evaluate": "score a checkpoint on a benchmark",
    "extract": "turn a run record into an outcome",
    "laws": "fit boundary and clock to a study's outcomes",
    "tables": "write Tables 1 to 3 of a study",
    "figures": "draw the figures of a study",
    "report": "write the one-page report of a study",
    "published": "re-analyse the published tables",
    "simulate": "run the theory simulator and check the estimators on it",
    "prepare": "write the training and evaluation data of the paper study",
    "diagnose": "say whether the run behind a log collapsed, and why it may have",
    "watch": "follow a growing log and raise the alarm at collapse",
    "calibrate": "estimate boundary and clock from several logs, and advise on a new setting",
}


class Parser(argparse.ArgumentParser):
    """Answers a wrong argument as any bad input is answered, by one sentence, without the lines of usage."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", int, _whole_number)
        self.register("type", float, _number)

    def error(self, message: str) -> NoReturn:
        text = " ".join(message.split())
        raise UserError(f"{text}." if "allowed" in text else f"{text}; `{self.prog} --help` lists what is allowed.")


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a whole number in digits") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number such as 1e-6") from None


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser with every command listed; only the asked-for command's module is imported."""
    parser = Parser(prog="collapse-laws", description=__doc__.split("\n")[0])
    parser.add_argument("--version", action="version", version=f"collapse-laws {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == only:
            module = importlib.import_module(f"collapse_laws.commands.{name}")
            module.configure(command)
            command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (0 done, 1 a negative answer, 2 bad input)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    asked = next((word for word in argv if not word.startswith("-")), None)
    try:
        args = build_parser(asked).parse_args(argv)
        return args.run(args) or 0
    except UserError as error:
        print(f"collapse-laws: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("collapse-laws: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head` closed the pipe: not an error, but nothing more can be printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"collapse-laws: error: {_of_the_system(error)}", file=sys.stderr)
        return 2


def _of_the_system(error: OSError) -> str:
    """One sentence for what the system refused: libraries raise OSError too, with texts of several lines."""
    lead = "cannot write: " if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) else ""
    name = error.filename2 or error.filename  # of a rename, the name that was asked for
    where = f" ({os.fsdecode(name) if isinstance(name, bytes) else name})" if name is not None else ""
    return f"{lead}{' '.join((error.strerror or str(error)).split())}{where}".rstrip(".") + "."
