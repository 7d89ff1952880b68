"""How many GPUs a run needs and how many there are, told before anything is downloaded or started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.study import Cell


def needed(cell: Cell) -> int:
    """GPUs of one run: training and rollout workers share none."""
    system = cell.settings["system"]
    return system["training_gpus"] + system["rollout_gpus"]


def names() -> list[str]:
    """Names of the GPUs of this machine, whatever may use them; empty where there are none."""
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()] if listed.returncode == 0 else []


def available() -> int:
    """GPUs that this process may use: what the scheduler made visible, else all of the machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1", "NoDevFiles")])
    return len(names())


def requested() -> int | None:
    """GPUs that Slurm granted this job on its node; None outside Slurm."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    if os.environ.get("SLURM_GPUS_ON_NODE", "").isdigit():
        return int(os.environ["SLURM_GPUS_ON_NODE"])
    for variable in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        if os.environ.get(variable):
            return len(os.environ[variable].split(","))
    return 0


def require(cell: Cell) -> None:
    """UserError where the run's GPUs are not here; a study whose device is the CPU needs none."""
    if cell.device == "cpu":
        return
    here, need = available(), needed(cell)
    if here < need:
        system = cell.settings["system"]
        raise UserError(
            f"study {cell.study!r} needs {need} GPUs a run ({system['training_gpus']} training, "
            f"{system['rollout_gpus']} rollout), and there {'is' if here == 1 else 'are'} {here or 'none'} here; run "
            "it with `--profile slurm`, or take the study 'proxy'."
        )


def require_request(cell: Cell) -> str:
    """A phrase on the Slurm job's GPUs; UserError where they are fewer than the run's."""
    granted, need = requested(), needed(cell)
    if granted is None:
        return "no Slurm job here, so no request to check"
    if granted < need:
        raise UserError(f"cell {cell.name} needs {need} GPUs, and this Slurm job was granted {granted}.")
    return f"{granted} GPUs granted by Slurm"


def marked_processes(variable: str, value: str) -> list[int]:
    """Processes of this machine whose environment was started with `variable=value`, without this one."""
    wanted = f"{variable}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or another user's
            continue
        if wanted in environment and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found
