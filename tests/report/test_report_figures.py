"""Figures: complete, with the same bytes each time, and safe to place in a page."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from report_synthetic import ROOT

from collapse_laws.cli import main
from collapse_laws.figures.catalogue import CATALOGUE, FIGURES, FORMATS
from collapse_laws.figures.palette import dark_twins
from collapse_laws.figures.theme import thin
from collapse_laws.svg import inline


def test_each_figure_comes_in_every_format(two_arms):
    made = {path.name for path in (two_arms.parent / "results/proxy/figures").iterdir()}
    assert made == {f"{n}.{suffix}" for n in FIGURES for suffix in FORMATS} | {"notes.json"}


@pytest.mark.parametrize("name", ["boundary", "clock", "traces"])
def test_redrawing_gives_the_same_bytes(two_arms, name):
    folder = two_arms.parent / "results/proxy/figures"
    before = {suffix: (folder / f"{name}.{suffix}").read_bytes() for suffix in FORMATS}
    assert main(["figures", "--params", str(two_arms), "--only", name]) == 0
    for suffix, content in before.items():
        assert (folder / f"{name}.{suffix}").read_bytes() == content, suffix


def test_the_boundary_map_shows_every_planned_cell(two_arms):
    folder = two_arms.parent / "results/proxy/figures"
    data = pd.read_csv(folder / "boundary.csv")
    assert len(data) == 36
    assert (data["label"] == "not_run").sum() == 9
    svg = (folder / "boundary.svg").read_text()
    assert svg.count("<title>") == 36
    assert "collapsed at M=2, onset in (16, 32]" in svg


def test_the_clock_shows_collapsed_runs_alone(two_arms):
    data = pd.read_csv(two_arms.parent / "results/proxy/figures/clock.csv")
    assert set(data["label"]) == {"collapsed"}
    assert len(data) == 6
    assert (data["low"] < data["high"]).all()


def test_captions_of_the_workflow_are_those_of_the_catalogue():
    for entry in CATALOGUE:
        text = (ROOT / "workflow" / "report" / f"{entry.name}.rst").read_text()
        assert text == f"{entry.title}. {entry.caption}\n"


def test_an_inlined_picture_refers_to_nothing_outside(two_arms):
    for path in (two_arms.parent / "results/proxy/figures").glob("*.svg"):
        text = inline(path.read_text(), "x", 'a "title"', dark_twins())
        assert text.startswith("<svg")
        assert "http" not in text
        assert "xlink" not in text
        ids = re.findall(r'\sid="([^"]*)"', text)
        assert len(ids) == len(set(ids))
        used = set(re.findall(r'href="#([^"]*)"', text)) | set(re.findall(r"url\(#([^)]*)\)", text))
        assert used == set(ids)


def test_thinning_keeps_the_mean_and_short_curves():
    x = np.arange(1000.0)
    thin_x, thin_y = thin(x, 2 * x, 100)
    assert len(thin_x) == 100
    assert thin_y == pytest.approx(2 * thin_x)
    assert thin_x.mean() == pytest.approx(x.mean())
    y = np.array([1.0, np.nan, 3.0])
    assert list(thin(np.arange(3), y)[1]) == [1.0, 3.0]
