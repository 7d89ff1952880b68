"""A synthetic study with two arms, drawn and written once, for the tests that only read."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_synthetic import make_study, onset_by_the_laws, write_everything


@pytest.fixture(scope="session")
def two_arms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """params.yaml of a study with two arms, a control at S = 1, two seeds, and cells that were not run."""
    params = make_study(
        tmp_path_factory.mktemp("two_arms"),
        arms=("recomputed", "vanilla"),
        sync_intervals=(1, 8, 16),
        rates=("2e-3", "1e-3", "4e-4"),
        seeds=(11, 12),
        onset=lambda cell: None if cell.arm == "vanilla" else onset_by_the_laws(cell),
        without=lambda cell: cell.arm == "vanilla" and cell.seed == 12,
    )
    write_everything(params)
    return params
