"""Starting models from the Hub: one revision, with the commit that it stood for written beside it.

Snakemake asks `source_is_current` while it plans, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.runrecord import write_json
from collapse_laws.study import Cell, Study

SOURCE = "source.json"  # beside a fetched model: hub id, revision and commit
_WEIGHTS = (
    "*.json",
    "*.safetensors",
    "*.model",
    "tokenizer*",
    "*.jinja",
)
_FILES = (*_WEIGHTS, "LICENSE*")  # no second copy in another format


def fetch(study: Study, model: str, out: Path) -> dict[str, str]:
    """Download a model of the study to `out`; return its hub id, revision and commit, also written
    to `out`/source.json.

    What lies there of another model goes. Raises UserError for a model that params.yaml does not
    have or that is not on the Hub, and where the Hub refuses.
    """
    settings = study.models.get(model)
    if settings is None or settings.get("kind") != "hub":
        allowed = [name for name, other in study.models.items() if other.get("kind") == "hub"]
        raise UserError(
            f"study {study.name!r} has no model {model!r} to fetch; allowed: {', '.join(allowed) or 'none'}."
        )
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    hub_id, revision = settings["hub_id"], settings["revision"]
    try:
        info = HfApi().model_info(hub_id, revision=revision)
        commit = info.sha
        (out / SOURCE).unlink(missing_ok=True)  # from here on the folder is neither model until all is there
        snapshot_download(hub_id, revision=commit, local_dir=out, allow_patterns=list(_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{hub_id} cannot be fetched from the Hub ({reason}); a gated model needs its licence accepted and "
            "HF_TOKEN set."
        ) from None
    _remove_others(out, [file.rfilename for file in info.siblings or ()])
    source = {"hub_id": hub_id, "revision": revision, "commit": commit}
    write_json(out / SOURCE, source)
    return source


def _remove_others(out: Path, names: Iterable[str]) -> None:
    """Remove what a loader might take for the model's although its commit lacks it: one leftover
    model.safetensors is read before any shards. After the download, so that a repeated one goes on."""
    kept = set(names)
    for path in out.iterdir():
        if path.is_file() and path.name not in kept and any(fnmatch(path.name, pattern) for pattern in _WEIGHTS):
            path.unlink()


def starting_model(folder: Path) -> dict[str, str] | None:
    """Hub id, revision and commit of a model folder that was fetched; None for any other."""
    try:
        source = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        source = None
    if not isinstance(source, dict) or not {"hub_id", "revision", "commit"} <= set(source):
        raise UserError(f"{folder / SOURCE} is damaged; fetch the model again with `collapse-laws prepare`.")
    return source


def source_is_current(path: Path, cell: Cell) -> bool:
    """Whether the source.json at `path` names the hub id and revision of the cell's model; False where it is missing
    or damaged."""
    try:
        source = starting_model(path.parent)
    except UserError:
        return False
    return source is not None and _wanted(cell) == (source["hub_id"], source["revision"])


def require_source(folder: Path, cell: Cell) -> None:
    """UserError where a fetched model is another than the cell's; a folder without source.json is the user's affair."""
    source = starting_model(folder)
    if source is not None and _wanted(cell) != (source["hub_id"], source["revision"]):
        wanted = " at ".join(map(str, _wanted(cell)))
        raise UserError(
            f"{folder} holds {source['hub_id']} at {source['revision']}, but {cell.name} starts from {wanted}; "
            f"`collapse-laws prepare --study {cell.study} --model {cell.model}` fetches it."
        )


def _wanted(cell: Cell) -> tuple[str | None, str | None]:
    model = cell.settings["model"]
    return model.get("hub_id"), model.get("revision")
