"""The paper study as verl's configuration: every cell composes, nothing is ignored, and † is verl's own doing."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="needs the extra `verl`")

from collapse_laws.errors import UserError
from collapse_laws.study import Cell, load_params, load_study
from collapse_laws.verl import composition, config
from collapse_laws.verl.overrides import (
    ACTOR,
    ROLLOUT,
    SETTING_KEYS,
    Override,
    Paths,
    hydra_value,
    overrides,
)

ROOT = Path(__file__).resolve().parents[2]
PATHS = Paths(
    model=Path("/models/m"),
    train_files=(Path("/data/t.parquet"),),
    validation_files=(Path("/data/v.parquet"), Path("/data/w.parquet")),
    reward=Path("/r/reward.py"),
    checkpoints=Path("/lab/states"),
    log=Path("/lab/attempts/000"),
)


@pytest.fixture(scope="module")
def paper() -> dict[str, Cell]:
    return {cell.name: cell for cell in load_study(load_params(ROOT / "params.yaml"), "paper").planned}


@pytest.fixture
def cell(paper: dict[str, Cell]) -> Cell:
    return paper["vanilla_llama3b_S32_eta1e-7_seed42"]


def with_settings(cell: Cell, **settings: object) -> Cell:
    return dataclasses.replace(cell, settings={**cell.settings, **settings})


def test_the_paper_study_is_the_papers_grid(paper: dict[str, Cell]) -> None:
    axes = {(c.model, c.sync_interval, c.lr, c.seed) for c in paper.values()}
    etas = (1e-6, 5e-7, 2e-7, 1e-7)
    main = {(m, s, eta, 42) for m in ("llama1b", "llama3b") for s in (8, 16, 32) for eta in etas}
    repeats = {("llama3b", 32, eta, seed) for eta in etas for seed in (42, 100, 2026)}
    stable = {("llama3b", 32, eta, seed) for eta in (8e-8, 7e-8, 6e-8, 5e-8) for seed in (42, 100, 2026)}
    qwen = {("qwen8b", 16, eta, 42) for eta in etas}
    assert axes == main | repeats | stable | qwen
    assert len(paper) == 48


def test_horizons_outlive_twice_the_clock_except_where_the_paper_stopped_earlier(
    paper: dict[str, Cell],
) -> None:
    for c in paper.values():
        budget = c.horizon_updates * c.lr
        assert c.reference_lr_budget == (6.4e-5 if c.model == "qwen8b" else 3.2e-5)
        if "extended-seeds" in c.blocks:
            assert c.horizon_updates == 512
        else:
            # the last snapshot that is seen lies one cycle before the end
            assert budget - c.sync_interval * c.lr >= 2 * c.reference_lr_budget * (1 - 1e-9), c.name
    assert paper["vanilla_llama3b_S32_eta5e-8_seed42"].horizon_updates == 1408


def test_every_cell_composes_and_every_value_arrives_in_verls_dataclasses(
    paper: dict[str, Cell],
) -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    for c in paper.values():
        composed = composition.checked(overrides(c, PATHS))
        assert OmegaConf.select(composed, "async_training.trigger_parameter_sync_step") == c.sync_interval
        assert OmegaConf.select(composed, "data.seed") == c.seed
        prompts = OmegaConf.select(composed, "rollout.total_rollout_steps")
        assert prompts == c.horizon_updates * c.settings["prompts_per_step"]
    actor = omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    assert actor.optim.lr == c.lr
    assert actor.optim.clip_grad == 1.0
    assert actor.engine.strategy == "fsdp2"
    assert actor.use_kl_loss
    assert actor.kl_loss_coef == 0.001


def test_what_is_left_out_as_verls_default_changes_nothing(cell: Cell) -> None:
    wanted = overrides(cell, PATHS)
    passed = composition.minimal(wanted)
    assert len(passed) < len(wanted)
    whole = composition.flatten(composition.compose([o.argument() for o in wanted]))
    assert composition.flatten(composition.compose([o.argument() for o in passed])) == whole


def test_only_s_eta_seed_and_what_follows_from_them_differ_between_cells_of_a_family(
    paper: dict[str, Cell],
) -> None:
    def values(name: str) -> dict[str, object]:
        return {o.key: o.value for o in overrides(paper[name], PATHS)}

    first, second = (
        values("vanilla_llama3b_S8_eta1e-6_seed42"),
        values("vanilla_llama3b_S32_eta1e-7_seed42"),
    )
    assert {key for key in first if first[key] != second[key]} == {
        "async_training.trigger_parameter_sync_step",
        f"{ACTOR}.optim.lr",
        "rollout.total_rollout_steps",  # the horizon
        "trainer.save_freq",  # counted in synchronisations
        "trainer.experiment_name",
    }


def test_resuming_names_the_checkpoint_and_keeps_the_horizon(cell: Cell) -> None:
    fresh = {o.key: o.value for o in overrides(cell, PATHS)}
    resumed = {o.key: o.value for o in overrides(cell, PATHS, Path("/lab/states/global_step_3"), 3)}
    assert fresh["trainer.resume_mode"] == "disable"
    assert resumed["trainer.resume_mode"] == "resume_path"
    assert resumed["trainer.resume_from_path"].endswith("global_step_3")
    assert resumed["rollout.total_rollout_steps"] == fresh["rollout.total_rollout_steps"]
    with pytest.raises(ValueError, match="beyond the horizon"):
        overrides(cell, PATHS, Path("/x"), cell.horizon_updates // cell.sync_interval)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (Override("async_training.nope", 1, "declared"), "does not take this configuration"),
        (
            Override(f"{ACTOR}.grad_clip", 0.5, "declared"),
            r"ignores .*grad_clip: the engine clips at",
        ),
        (Override(f"{ACTOR}.fsdp_config.dtype", "float32", "declared"), "mixed_precision"),
        (
            Override("algorithm.rollout_correction.rollout_is", "token", "declared"),
            "while rollout_correction.bypass_mode",
        ),
        (Override("trainer.total_training_steps", 5, "declared"), "rollout.total_rollout_steps"),
    ],
)
def test_an_unknown_or_silently_ignored_key_fails(cell: Cell, override: Override, sentence: str) -> None:
    wanted = {o.key: o for o in overrides(cell, PATHS)} | {override.key: override}
    with pytest.raises(UserError, match=sentence):
        composition.checked(list(wanted.values()))


def test_the_engines_strategy_alone_fails(cell: Cell) -> None:
    wanted = [o for o in overrides(cell, PATHS) if o.key != f"{ACTOR}.strategy"]
    with pytest.raises(UserError, match=r"ignores .*fsdp_config.strategy=fsdp2: .*actor.strategy overwrites it"):
        composition.checked(wanted)


def test_a_value_that_a_dataclass_replaces_or_has_no_field_for_fails(cell: Cell) -> None:
    wanted = overrides(cell, PATHS)
    composed = composition.compose([o.argument() for o in composition.minimal(wanted)])
    with pytest.raises(UserError, match=r"replaces .*optim.lr=0.5 by 1e-07"):
        composition._check_dataclasses(composed, {f"{ACTOR}.optim.lr": 0.5})
    with pytest.raises(UserError, match=r"ignores .*optim.velocity"):
        composition._check_dataclasses(composed, {f"{ACTOR}.optim.velocity": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ratio", "recomputed"),
        ("advantage_ddof", 0),
        ("advantage_eps", 1e-4),
        ("adam_eps", 1e-6),
        ("temperature", 0.7),
        ("top_p", 0.9),
        ("lr_schedule", "cosine"),
        ("grad_clip", None),
    ],
)
def test_a_setting_that_verl_cannot_express_is_refused_in_a_sentence(cell: Cell, key: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{key}: .*is not allowed with verl"):
        overrides(with_settings(cell, **{key: value}), PATHS)


def test_float32_reaches_the_engine(cell: Cell) -> None:
    from omegaconf import OmegaConf

    composed = composition.checked(overrides(with_settings(cell, dtype="float32"), PATHS))
    for role in ("actor", "ref"):
        held = OmegaConf.select(composed, f"actor_rollout_ref.{role}.fsdp_config.mixed_precision.param_dtype")
        assert held == "float32"


def test_no_dual_clip_is_a_bound_that_no_ratio_reaches(cell: Cell) -> None:
    import math

    values = {o.key: o.value for o in overrides(with_settings(cell, dual_clip=None), PATHS)}
    assert values[f"{ACTOR}.clip_ratio_c"] > math.exp(20)  # verl clamps log-ratios to 20


def test_a_study_may_replace_and_add_keys_of_its_own(cell: Cell) -> None:
    own = [
        f"{ROLLOUT}.gpu_memory_utilization=0.6",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    ]
    wanted = overrides(with_settings(cell, system={**cell.settings["system"], "framework_overrides": own}), PATHS)
    composed = composition.checked(wanted)
    assert composed.actor_rollout_ref.rollout.gpu_memory_utilization == 0.6
    assert composed.actor_rollout_ref.model.override_config.attn_implementation == "sdpa"
    assert len({o.key for o in wanted}) == len(wanted)
    with pytest.raises(UserError, match="key=value"):
        overrides(
            with_settings(cell, system={**cell.settings["system"], "framework_overrides": ["nonsense"]}),
            PATHS,
        )


def test_overrides_survive_hydras_grammar() -> None:
    text = "a b,c{}='\"é\\"
    arguments = [
        f"trainer.project_name={hydra_value(text)}",
        f"trainer.logger={hydra_value(['console', 'file'])}",
    ]
    composed = composition.compose([*arguments, "algorithm.rollout_correction.rollout_is=null"])
    assert composed.trainer.project_name == text
    assert list(composed.trainer.logger) == ["console", "file"]


# Table 2


def test_table2_values_are_the_composed_ones_and_the_dagger_means_not_passed_on(cell: Cell) -> None:
    wanted = overrides(cell, PATHS)
    composed = composition.flatten(composition.checked(wanted))
    passed = {o.key for o in composition.minimal(wanted)}
    rows = config.table2(cell, wanted)
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        if row.key in composed:
            assert row.value == composed[row.key]
            assert row.dagger == (row.key not in passed)
            assert row.framework_default == composition.defaults()[row.key]
            if row.dagger:
                assert row.value == row.framework_default
        assert row.mark in ("stated", "derived", "declared", "default")
        assert row.mark != "default" or row.dagger


def test_table2_has_the_papers_daggers(cell: Cell) -> None:
    rows = {row.label: row for row in config.table2(cell, overrides(cell, PATHS))}
    daggered = (
        "temperature top-p top-k dual~clip KL~coefficient KL~estimator aggregation~of~the~loss betas weight~decay "
        "gradient~norm~clip entropy~coefficient standard~deviation,~ddof Adam's~epsilon arithmetic"
    )
    for label in daggered.split():
        assert rows[label.replace("~", " ")].dagger, label
    for label in (
        "group size",
        "prompts per learner step",
        "KL penalty in the loss",
        "weight staleness threshold",
        "sharding",
    ):
        assert not rows[label].dagger, label
    assert rows["weight staleness threshold"].framework_default == 0.1


def test_a_changed_setting_loses_its_dagger(cell: Cell) -> None:
    changed = with_settings(cell, weight_decay=0.1)
    row = next(r for r in config.table2(changed, overrides(changed, PATHS)) if r.label == "weight decay")
    assert (row.value, row.framework_default, row.dagger, row.mark) == (
        0.1,
        0.01,
        False,
        "declared",
    )


def test_every_setting_has_a_framework_default() -> None:
    found = {setting: config.framework_default(setting) for setting in SETTING_KEYS}
    assert found["prompts_per_step"] == 256
    assert found["advantage_ddof"] == 1
    assert found["advantage_eps"] == 1e-6
    assert found["adam_eps"] == 1e-8
    assert found["dtype"] == "bfloat16"
    assert found["adam_beta2"] == 0.999
    assert found["ratio"] == "behaviour"
    assert found["model.chat_template.date_string"] is None


def test_settings_marked_default_in_params_equal_verls(cell: Cell) -> None:
    """params.yaml's marks are checked against the framework, not believed."""
    lines = (ROOT / "params.yaml").read_text(encoding="utf-8").split("\n  paper:", 1)[1].splitlines()
    marked = {
        line.split(":")[0].strip()
        for line in lines
        if "[default]" in line and line.split(":")[0].strip() in SETTING_KEYS
    }
    assert {"temperature", "weight_decay", "dual_clip", "kl_estimator"} <= marked
    for setting in marked:
        assert cell.settings[setting] == config.framework_default(setting), setting


def test_the_table_of_knobs_has_verls_defaults() -> None:
    path = ROOT / "reference" / "knobs.csv"
    if not path.exists():
        pytest.skip("needs reference/knobs.csv")
    with open(path, encoding="utf-8", newline="") as file:
        knobs = {row["key"]: row["framework_default"] for row in csv.DictReader(file)}
    compared = 0
    for setting in SETTING_KEYS.keys() & knobs.keys():
        if setting in ("ratio", "lr_schedule") and not knobs[setting]:
            continue
        default = config.framework_default(setting)
        assert (_number(knobs[setting]) if knobs[setting] else None) == default, setting
        compared += 1
    assert compared >= 25


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
