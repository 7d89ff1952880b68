"""Starting models from the Hub: one revision, with the commit that it stood for written beside it."""

from __future__ import annotations

from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.runrecord import write_json
from collapse_laws.study import Study
from collapse_laws.verl.record import SOURCE

_FILES = (
    "*.json",
    "*.safetensors",
    "*.model",
    "tokenizer*",
    "*.jinja",
    "LICENSE*",
)  # no second copy in another format


def fetch(study: Study, model: str, out: Path) -> dict[str, str]:
    """Download a model of the study to `out`; return its hub id, revision and commit, also written
    to `out`/source.json.

    Raises UserError for a model that params.yaml does not have or that is not on the Hub, and where
    the Hub refuses.
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
        commit = HfApi().model_info(hub_id, revision=revision).sha
        snapshot_download(hub_id, revision=commit, local_dir=out, allow_patterns=list(_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{hub_id} cannot be fetched from the Hub ({reason}); a gated model needs its licence accepted and "
            "HF_TOKEN set."
        ) from None
    source = {"hub_id": hub_id, "revision": revision, "commit": commit}
    write_json(out / SOURCE, source)
    return source
