"""Studies and cells: expansion, names, digests, and one sentence for every kind of bad params.yaml."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import yaml

from collapse_laws.cli import main
from collapse_laws.errors import UserError
from collapse_laws.fingerprint import learner_fingerprint
from collapse_laws.ledger import check_records
from collapse_laws.runrecord import write_json
from collapse_laws.study import (
    CELL_PATTERN,
    cell_name,
    load_params,
    load_study,
    lr_text,
    study_names,
    validate_params,
)

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "workflow" / "schemas" / "params.schema.yaml"


@pytest.fixture
def params() -> dict:
    return copy.deepcopy(load_params(ROOT / "params.yaml"))


def test_every_study_expands(params):
    for name in study_names(params):
        study = load_study(params, name, "full")
        names = [cell.name for cell in study.cells]
        assert len(set(names)) == len(names) > 0
        assert all(re.fullmatch(CELL_PATTERN, n) and "." not in n for n in names)
        assert {cell.name for cell in load_study(params, name, "core").cells} <= set(names)


def test_the_proxy_study_is_the_grid_it_claims(params):
    core = load_study(params, "proxy", "core").cells
    assert {cell.sync_interval for cell in core} == {1, 8, 16, 32}
    rates = {cell.lr for cell in core if cell.sync_interval > 1}
    assert len(rates) >= 4
    assert max(rates) / min(rates) >= 10
    assert {cell.arm for cell in core} == {"recomputed", "vanilla", "lowerclipoff"}
    budgets = {cell.settings["horizon_lr_budget"] for cell in core}
    assert budgets == {0.32}
    for cell in core:
        assert cell.horizon_updates % cell.sync_interval == 0
        assert cell.horizon_updates * cell.lr >= 2 * cell.reference_lr_budget * (1 - 1e-9)


@pytest.mark.parametrize(
    ("value", "text"),
    [("1e-3", "1e-3"), ("1.5e-4", "15e-5"), (1e-7, "1e-7"), ("0.002", "2e-3"), (0.25, "25e-2")],
)
def test_rate_names(value, text):
    assert lr_text(value) == text
    assert float(text) == float(value)
    assert cell_name("a", "m", 8, value, 1) == f"a_m_S8_eta{text}_seed1"


def test_only_what_decides_a_run_is_in_its_digest(params):
    before = {cell.name: cell.digest for cell in load_study(params, "smoke").planned}
    labels = copy.deepcopy(params)
    labels["studies"]["smoke"]["title"] = "another title"
    labels["studies"]["smoke"]["arms"]["recomputed"]["reference_lr_budget"] = 1.0
    assert before == {cell.name: cell.digest for cell in load_study(labels, "smoke").planned}
    deciding = copy.deepcopy(params)
    deciding["studies"]["smoke"]["arms"]["recomputed"]["kl_coef"] = 0.5
    changed = {cell.name: cell.digest for cell in load_study(deciding, "smoke").planned}
    assert all(changed[name] != digest for name, digest in before.items())


def test_settings_of_one_block_change_its_cells_only(params):
    blocks = params["studies"]["smoke"]["blocks"]
    before = {cell.name: cell.digest for cell in load_study(params, "smoke").planned}
    grid = blocks["grid"]
    grid["lr"] = "2e-3"
    blocks["slow"] = {**grid, "lr": "1e-3", "settings": {"group_size": 4}}
    after = {cell.name: cell.digest for cell in load_study(params, "smoke").planned}
    assert set(after) == set(before)
    assert {n for n in after if after[n] != before[n]} == {n for n in after if "eta1e-3" in n}


def bad(params: dict, path: str, value: object) -> dict:
    """The params with the value at a dotted path replaced."""
    *way, last = path.split(".")
    place = params
    for key in way:
        place = place[key]
    place[last] = value
    return params


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("studies.smoke.blocks.grid.sync_interval", [-8], ["sync_interval", "-8", "at least 1"]),
        ("studies.smoke.blocks.grid.sync_interval", "eight", ["sync_interval", "eight"]),
        ("studies.smoke.blocks.grid.lr", ["fast"], ["lr", "fast", "between 0 and 1"]),
        ("studies.smoke.blocks.grid.lr", ["-1e-3"], ["lr", "-1e-3", "between 0 and 1"]),
        ("studies.smoke.blocks.grid.arm", "vanila", ["arm", "vanila", "recomputed"]),
        ("studies.smoke.blocks.grid.model", "huge", ["model", "huge", "tiny"]),
        ("studies.smoke.blocks.grid.seed", 1.5, ["seed", "1.5"]),
        ("studies.smoke.blocks.grid.eta", "1e-3", ["grid", "eta", "sync_interval"]),
        ("studies.proxy.settings.group_size", 1, ["group_size", "1", "at least 2"]),
        ("studies.proxy.arms.vanilla.ratio", "fresh", ["ratio", "fresh", "behaviour"]),
        ("studies.proxy.trainer", "trl", ["trainer", "trl", "local or verl"]),
        ("study", "nope", ["nope", "proxy"]),
        ("extent", "half", ["half", "core"]),
        ("studies.smoke.base", "nope", ["nope", "proxy"]),
    ],
)
def test_bad_params_name_key_value_and_what_is_allowed(params, path, value, words):
    params = bad(params, path, value)
    name = "smoke" if path.startswith("studies.smoke") else None

    def read() -> None:
        validate_params(params, SCHEMA)
        load_study(params, name)

    with pytest.raises(UserError) as error:
        read()
    text = str(error.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


def test_one_cell_with_two_meanings_is_refused(params):
    blocks = params["studies"]["smoke"]["blocks"]
    blocks["again"] = {**blocks["grid"], "settings": {"group_size": 4}}
    with pytest.raises(UserError, match="different settings"):
        load_study(params, "smoke")


@pytest.mark.parametrize("text", ["studies: [", "\x00\x01", "just text", ""])
def test_params_that_are_no_yaml_or_no_study(tmp_path, text):
    (tmp_path / "workflow" / "schemas").mkdir(parents=True)
    (tmp_path / "workflow/schemas/params.schema.yaml").write_text(SCHEMA.read_text())
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(UserError):
        load_params(tmp_path / "params.yaml")


def test_params_without_their_schema_and_a_folder_are_told_in_a_sentence(tmp_path, capsys):
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    for given, words in ((tmp_path / "params.yaml", "params.schema.yaml is missing"), (tmp_path, "cannot be read")):
        assert main(["train", "--params", str(given), "--study", "paper", "--cell", "x"]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_command_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["cells", "--study", "smoke"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["cells", "--check"]) == 0
    for arguments, word in (
        (["cells", "--study", "nope"], "nope"),
        (["train", "--study", "smoke", "--cell", "nope"], "nope"),
        (["cells", "--params", str(tmp_path / "params.yaml")], "missing"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert word in error
        assert error.count("\n") == 1


def test_ledger_is_the_expansion(params):
    ledger = yaml.safe_load((ROOT / "workflow" / "cells.yaml").read_text())
    assert set(ledger["cells"]) == set(study_names(params))
    for name, rows in ledger["cells"].items():
        cells = {cell.name: cell.digest for cell in load_study(params, name).planned}
        assert {key: cells[key] for key in rows} == {k: row["settings"] for k, row in rows.items()}
    recorded = load_study(params, "proxy", params["studies"]["proxy"]["recorded"]).cells
    assert set(ledger["cells"]["proxy"]) == {cell.name for cell in recorded}


def test_a_ledger_is_not_written_over_records_of_other_settings(params, tmp_path):
    small = {"study": "smoke", "studies": {"smoke": params["studies"]["smoke"], "proxy": params["studies"]["proxy"]}}
    small["studies"]["smoke"]["recorded"], small["studies"]["proxy"]["recorded"] = "core", []
    with pytest.raises(UserError, match=r"4 recorded cell\(s\) have no run"):
        check_records(small, tmp_path)
    for cell in load_study(small, "smoke").planned:
        current = {"settings_digest": cell.digest, "source_fingerprint": learner_fingerprint()}
        write_json(tmp_path / "smoke" / cell.name / "run.json", current)
    check_records(small, tmp_path)
