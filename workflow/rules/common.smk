# What all rules share: the studies, the package's command and the test that decides whether a cell is trained.
import os
import shlex
import sys
import time
from functools import cache
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.fingerprint import is_current, training_fingerprint
from collapse_laws.study import CELL_PATTERN, load_params, load_study, study_names
from collapse_laws.verl.models import source_is_current
from collapse_laws.verl.prepared import prepared_is_current

# The interpreter of this Snakemake: nothing needs to be on the PATH, neither here nor on a cluster's node. It must not be
# a parameter of a rule that trains: the same environment at another path would train again.
COMMAND = f"{shlex.quote(sys.executable)} -m collapse_laws"

PUBLISHED_TABLES = expand(
    "src/collapse_laws/laws/reference/{table}.csv",
    table=["table1", "table3", "extended"],
)


def checked(call, *args):
    """The result of a call, its UserError as the one sentence that Snakemake prints."""
    try:
        return call(*args)
    except UserError as error:
        raise WorkflowError(str(error)) from None


def load_settings():
    """params.yaml, with the study and the extent that `--config` may name; no other key is taken from there."""
    unknown = sorted(set(config) - {"study", "extent"})
    if unknown:
        raise UserError(
            f"--config {unknown[0]}=... is not allowed; allowed: study and extent. "
            "Everything else is set in params.yaml, where the commands read it too."
        )
    return {**load_params(), **config}


PARAMS = checked(load_settings)
STUDY, EXTENT = PARAMS["study"], PARAMS.get("extent", "core")


@cache
def study_of(name):
    return checked(load_study, PARAMS, name, EXTENT)


@cache
def cells_by_name(study):
    """Every planned cell of a study: a single run may be asked for whatever the extent is."""
    return {cell.name: cell for cell in study_of(study).planned}


def cells(study):
    """The cells of a study in the extent that is asked for."""
    return study_of(study).cells


def cell_of(wildcards):
    known = cells_by_name(wildcards.study)
    return known.get(wildcards.cell) or checked(study_of(wildcards.study).cell, wildcards.cell)


study_of(STUDY)  # an unknown study or extent ends here, in one sentence


wildcard_constraints:
    study="|".join(study_names(PARAMS)),
    cell=CELL_PATTERN,
    model="[a-z0-9-]+",
    snapshot=r"final|\d+",
    benchmark="[a-z0-9_-]+",


def run_json(cell):
    return f"runs/{cell.study}/{cell.name}/run.json"


@cache
def record_is_current(study, cell):
    """Whether the run record says that it was made with params.yaml's settings and the present training source.

    The record itself is asked, not Snakemake's metadata: a clone with pulled records has no metadata, and metadata
    knows nothing of a record that `dvc checkout` has exchanged.
    """
    cell = cells_by_name(study)[cell]
    return is_current(Path(run_json(cell)), cell.digest, training_fingerprint(cell.trainer))


def start_is_current(cell):
    """Whether a cell's starting checkpoint is that of params.yaml's settings and the present source."""
    folder = Path(f"models/{cell.study}/{cell.model}")
    if cell.trainer == "verl":
        return source_is_current(folder / "source.json", cell)
    return is_current(folder / "warmstart.json", cell.start_digest, training_fingerprint("local"))


# Named for the line in which Snakemake says why it trains again: "Updated input files: ...".
CHANGED = "work/settings-or-source-changed"


def mark_changed(output):
    """Make CHANGED newer than `output` and unlike any earlier CHANGED (Snakemake compares small files by content)."""
    mark = Path(CHANGED)
    times = [os.path.getmtime(path) for path in (CHANGED, output) if os.path.exists(path)]
    newest = max(times, default=0.0)
    mark.parent.mkdir(exist_ok=True)
    mark.write_text(f"{time.time_ns()} {output}\n", encoding="utf-8")
    if newest >= mark.stat().st_mtime:  # pulled files may bear any time, the future's too
        os.utime(mark, (newest + 1, newest + 1))


def unless(current, output):
    """The input that makes a job run again: CHANGED, whose age does not count where the output is current."""
    if not current:
        mark_changed(output)
        return CHANGED
    if not os.path.exists(CHANGED):
        mark_changed("nothing")
    return ancient(CHANGED)


def by_device(cpu, gpu, verl):
    """A resource by where a cell trains: on this CPU, on one GPU, or through verl on eight."""

    def choose(wildcards):
        cell = cell_of(wildcards)
        return verl if cell.trainer == "verl" else gpu if cell.device == "cuda" else cpu

    return choose
