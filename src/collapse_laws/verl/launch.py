"""The supervisor of one verl run: starts the trainer, follows its lines, stops it, resumes it, and leaves the record.

verl's trainer cannot stop itself: its rollouter and its trainer wait for each other. So it runs in
a process group of its own, and this process reads the lines that `hooks` write. It ends a run at
the horizon, when the reward stays down (`stopping`), or when the learner has had no finite gradient
for a whole cycle. What is left after a kill in `work` is enough to go on from the last checkpoint.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tqdm import tqdm

from collapse_laws.errors import UserError
from collapse_laws.fingerprint import training_fingerprint
from collapse_laws.runrecord import settings_digest, write_json
from collapse_laws.study import Cell
from collapse_laws.verl import gpus
from collapse_laws.verl.branch import LINES, START, VERL_LOG, read_attempts, surviving_branch
from collapse_laws.verl.composition import MAIN_MODULE, checked, minimal, require_verl
from collapse_laws.verl.data import RunData, run_data
from collapse_laws.verl.ending import ending
from collapse_laws.verl.hooks import CONSUMED_VARIABLE, LOG_VARIABLE
from collapse_laws.verl.models import require_source, starting_model
from collapse_laws.verl.overrides import HOOKS_MODULE, Paths, overrides
from collapse_laws.verl.record import export_final, write_record

# marks every process of a run with its work folder, those that Ray detaches too
RUN_VARIABLE = "COLLAPSE_LAWS_VERL_RUN"
IDENTITY = "cell.json"  # in the work folder: what the run in progress was started with
TRACKER = "latest_checkpointed_iteration.txt"  # verl's own, written after a checkpoint is complete


class Preempted(Exception):
    """The supervisor was told to end (SIGTERM); the run goes on from its last checkpoint when started again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience of the supervisor [declared]."""

    stall_seconds: float = 5400.0  # without a line; a start and a validation of 5,000 problems fit in
    grace_seconds: float = 60.0  # between SIGTERM and SIGKILL
    poll_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one run, absolute."""

    model: Path
    work: Path
    checkpoints: Path
    out: Path

    @property
    def attempts(self) -> Path:
        return self.work / "attempts"

    @property
    def states(self) -> Path:
        """verl's own checkpoints."""
        return self.work / "states"


def check(cell: Cell) -> str:
    """Compose and check the cell's configuration, and a Slurm job's GPUs; starts and downloads
    nothing. A sentence that says so."""
    placeholder = Path("/nowhere")
    paths = Paths(placeholder, (placeholder,), (placeholder,), placeholder, placeholder, placeholder)
    checked(overrides(cell, paths))
    return f"{cell.name}: verl takes the configuration; {gpus.require_request(cell)}."


def train(
    cell: Cell,
    *,
    model_dir: Path,
    work: Path,
    checkpoints: Path,
    out: Path,
    data: Path | None = None,
    limits: Limits | None = None,
) -> str:
    """Run or resume a cell until its record stands in `out`; return the stop reason.

    model_dir: the starting checkpoint. work: the run in progress. checkpoints: where the final
    policy goes. data: prepared files, default data/<study>. Raises UserError (no GPUs, missing
    data, a second start of a running cell, a trainer that died or stalled) and Preempted after
    SIGTERM.
    """
    gpus.require(cell)
    require_verl()
    folders = Folders(model_dir.resolve(), work.resolve(), checkpoints.resolve(), out.resolve())
    if not (folders.model / "config.json").exists():
        raise UserError(
            f"{model_dir} holds no model; `collapse-laws prepare --study {cell.study} --model {cell.model}` fetches it."
        )
    require_source(folders.model, cell)
    files = run_data(cell, (data or Path("data") / cell.study).resolve())
    with _alone(folders.work, cell):
        began = datetime.now(UTC)
        _keep_to_one_run(cell, folders, files)
        reason = _supervise(cell, folders, files, limits or Limits())
        branch = surviving_branch(read_attempts(folders.attempts), cell.sync_interval)
        # by the tracker: a trainer that is ended while it saves leaves half a checkpoint
        final = export_final(folders.states, folders.checkpoints, checkpointed_version(folders.states))
        write_record(cell, branch, files, folders.work, folders.model, folders.out, reason, began, final)
    shutil.rmtree(folders.work)
    return reason


@contextmanager
def _alone(work: Path, cell: Cell) -> Iterator[None]:
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{cell.name} is being trained already ({work} is locked).") from None
        yield


def _keep_to_one_run(cell: Cell, folders: Folders, files: RunData) -> None:
    """Write what decides the run when it first starts; UserError where a later start would go on under anything else,
    since its record names one set of settings for all its updates."""
    path = folders.work / IDENTITY
    now = {
        "settings_digest": cell.digest,
        "source_fingerprint": training_fingerprint("verl"),
        "starting_model": (starting_model(folders.model) or {}).get("commit"),
        "data": settings_digest(files.digests),
    }
    if not read_attempts(folders.attempts):
        write_json(path, now)
        return
    then = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    changed = [
        f"{key} was {then.get(key, 'not written down')} and is {value} now"
        for key, value in now.items()
        if key not in then or then[key] != value
    ]
    if changed:
        raise UserError(
            f"{folders.work} holds a run of {cell.name} that cannot go on: {', '.join(changed)}; restore what it "
            "started with, or remove the folder to train the cell anew."
        )


def checkpointed_version(states: Path) -> int:
    """The parameter version of the last complete checkpoint, 0 where there is none; others are removed."""
    tracker = states / TRACKER
    told = tracker.read_text().strip() if tracker.exists() else "0"
    # ended between opening and writing it, which verl does once the newest checkpoint is complete
    version = int(told or max((p.name.rsplit("_", 1)[1] for p in states.glob("global_step_*")), key=int, default="0"))
    for folder in states.glob("global_step_*"):
        if folder.name != f"global_step_{version}":
            shutil.rmtree(folder)
    if version and not (states / f"global_step_{version}").is_dir():
        raise UserError(
            f"{states} lacks its checkpoint global_step_{version}; remove the folder and train the cell again."
        )
    return version


def _supervise(cell: Cell, folders: Folders, files: RunData, limits: Limits) -> str:
    """Start attempts' trainer and follow it; return the stop reason."""
    end_processes(folders.work)  # of a supervisor that was killed outright; the lock is ours now
    version = checkpointed_version(folders.states)
    attempts = read_attempts(folders.attempts)
    reason = ending(cell, surviving_branch(attempts, cell.sync_interval)) if attempts else None
    if reason == "horizon" and version * cell.sync_interval < cell.horizon_updates:
        reason = None  # killed between the last update and its checkpoint: make those updates again
    if reason:
        return reason
    attempt = folders.attempts / f"{len(attempts):03d}"
    # there already where a start was cut short before it wrote start.json
    attempt.mkdir(parents=True, exist_ok=True)
    resume = folders.states / f"global_step_{version}" if version else None
    paths = Paths(folders.model, files.train, files.validation, files.reward, folders.states, attempt)
    wanted = overrides(cell, paths, resume, version)
    checked(wanted)
    arguments = [o.argument() for o in minimal(wanted)]
    write_json(attempt / "overrides.json", arguments)
    write_json(attempt / START, {"version": version})
    told: list[int] = []
    handler = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    trainer = _Trainer(cell, attempt, arguments, version, limits)
    try:
        with tqdm(
            total=cell.horizon_updates,
            initial=version * cell.sync_interval,
            desc=cell.name,
            unit="update",
            disable=None,
        ) as bar:
            return _follow(cell, folders, trainer, bar, limits, told)
    finally:
        trainer.end()
        signal.signal(signal.SIGTERM, handler)


def _follow(cell: Cell, folders: Folders, trainer: _Trainer, bar: tqdm, limits: Limits, told: list[int]) -> str:
    done = trainer.first_update  # not the bar's count: a hidden one counts nothing
    last_size, last_news, reason = -1, time.monotonic(), None
    while True:
        code = trainer.process.poll()  # before the lines are read, so that none is missed
        size = trainer.lines.stat().st_size if trainer.lines.exists() else 0
        if size != last_size:
            last_size, last_news = size, time.monotonic()
            attempts = read_attempts(folders.attempts)
            fault = next((line["error"] for line in attempts[-1].lines if line["kind"] == "fault"), None)
            if fault:
                raise UserError(f"{cell.name} was stopped: {fault}")
            branch = surviving_branch(attempts, cell.sync_interval)
            bar.update(len(branch.updates) - done)
            done = len(branch.updates)
            reason = ending(cell, branch)
            if reason not in (None, "horizon"):
                return reason
        if code is not None:
            if code == 0 and reason == "horizon":
                return reason
            raise UserError(
                f"the trainer of {cell.name} ended with exit code {code} after {done} of {cell.horizon_updates} "
                f"updates; its log is {trainer.console}; start the cell again to go on from its last checkpoint."
            )
        if told:
            raise Preempted(cell.name)
        if time.monotonic() - last_news > limits.stall_seconds:
            raise UserError(
                f"the trainer of {cell.name} has made no update for {limits.stall_seconds:g} seconds after {done} "
                f"updates, so it was ended; its log is {trainer.console}; start the cell again to go on from its last "
                "checkpoint."
            )
        time.sleep(limits.poll_seconds)


class _Trainer:
    """verl's process group."""

    def __init__(self, cell: Cell, attempt: Path, arguments: list[str], version: int, limits: Limits) -> None:
        self.lines, self.console, self._limits = attempt / LINES, attempt / "console.log", limits
        self._work = attempt.parent.parent
        self.first_update = version * cell.sync_interval
        consumed = self.first_update * cell.settings["prompts_per_step"]
        package_root = str(Path(__file__).resolve().parents[2])
        modules = [
            *filter(None, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")),
            HOOKS_MODULE,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([package_root, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "VERL_USE_EXTERNAL_MODULES": ",".join(modules),
            # nothing that happens to be installed may change a run
            "VERL_USE_EXTERNAL_PLUGINS": "none",
            "VERL_FILE_LOGGER_PATH": str(attempt / VERL_LOG),
            "RAY_ADDRESS": "local",  # never another cluster that runs on this machine
            "TOKENIZERS_PARALLELISM": "false",
            "HYDRA_FULL_ERROR": "1",
            LOG_VARIABLE: str(self.lines),
            CONSUMED_VARIABLE: str(consumed),
            RUN_VARIABLE: str(self._work),
        }
        with open(self.console, "wb") as console:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MAIN_MODULE, *arguments],
                stdout=console,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=attempt,
                start_new_session=True,
            )

    def end(self) -> None:
        """End the process group, and whatever of this run Ray has detached from it; returns when all are gone."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + self._limits.grace_seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        end_processes(self._work)
        self.process.wait()


def end_processes(work: Path) -> None:
    """Kill every process of this machine that belongs to the run in `work`; returns when none is left."""
    while left := gpus.marked_processes(RUN_VARIABLE, str(work)):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
