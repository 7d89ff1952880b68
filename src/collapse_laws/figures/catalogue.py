"""What figures there are: name, title, caption and the page's section, without drawing anything.

Snakemake's rules, the page and the drawing command share this list. The captions also stand in
workflow/report/<name>.rst for `snakemake --report`. The paper's own figures are named where one of
ours is its counterpart [stated].
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """One figure of a study."""

    name: str  # results/<study>/figures/<name>.{svg,pdf,png,csv}
    module: str  # of collapse_laws.figures, with a function draw_<name>
    section: str  # of the page
    title: str
    caption: str


CATALOGUE = (
    FigureSpec(
        "boundary",
        "boundary",
        "boundary",
        "Stability boundary",
        "Every run at its synchronisation interval S and learning rate. Filled: collapsed. Half filled: oscillating. "
        "Hollow: survived; its size is the horizon in units of the reference clock. A question mark: undecided. A "
        "grey dot: not run. The band lies between the largest surviving and the smallest collapsed S x lr; the dashed "
        "line has slope -1, as law (i) asks.",
    ),
    FigureSpec(
        "clock",
        "clock",
        "clock",
        "Collapse clock",
        "Collapsed runs only. A bar is the interval (t - S, t] of updates that holds the onset, for rollouts show the "
        "policy at multiples of S alone. Left: against the learning rate, slope -1 dashed. Middle: onset x lr against "
        "S x lr, flat under law (ii). Right: the same relative to the common clock, by S.",
    ),
    FigureSpec(
        "by_budget",
        "budget",
        "clock",
        "Reward against cumulative learning rate",
        "Reward of each rollout batch against the sum of learning rates so far. Under law (ii) the drops of all "
        "collapsing runs line up. Ticks at the bottom: collapse. Survivors are grey.",
    ),
    FigureSpec(
        "curves",
        "curves",
        "curves",
        "Joint dynamics",
        "Reward of each rollout batch, gradient cosine and validation reward over learner updates, one column for "
        "each S, one colour for each learning rate, one line for each seed. A cosine is the mean over the updates "
        "of a rollout batch, of 8 where S < 8. Triangles: collapse. The counterpart of the paper's Figures 1 and 6.",
    ),
    FigureSpec(
        "long_horizon",
        "curves",
        "curves",
        "Survivors over their whole horizon",
        "Runs that ended stable, over time in units of the reference clock c2/lr: a run is called a survivor only "
        "beyond 2 (dotted). The counterpart of the paper's Figure 2.",
    ),
    FigureSpec(
        "families",
        "comparison",
        "curves",
        "Models side by side",
        "One column for each model at the S that most models share: reward, gradient cosine and validation reward "
        "over learner updates. The counterpart of the paper's Figure 3.",
    ),
    FigureSpec(
        "late_cosine",
        "comparison",
        "curves",
        "Gradient cosine nearest the boundary",
        "The collapsed setting with the smallest S x lr, all seeds: reward above, gradient cosine below, thin "
        "for single updates, thick for the mean over a rollout batch. A rise of the cosine shortly before the drop is "
        "what the paper reports. The counterpart of its Figure 4.",
    ),
    FigureSpec(
        "seeds",
        "comparison",
        "curves",
        "Seeds of one setting",
        "Settings run with several seeds, one panel each: reward of each rollout batch, one line for each seed, "
        "collapse marked by a triangle. The counterpart of the paper's Figure 5.",
    ),
    FigureSpec(
        "controls",
        "comparison",
        "controls",
        "Controls at S = 1",
        "Learning rates that were also run at S = 1, where no staleness exists: reward over learner updates for every "
        "S. A rate that fails at S = 1 too fails for another reason than staleness.",
    ),
    FigureSpec(
        "traces",
        "traces",
        "curves",
        "One panel for each configuration",
        "Reward of each rollout batch, all seeds; the thin grey line is the reward of each learner batch. Triangles: "
        "collapse. The counterpart of the paper's Appendix E.",
    ),
    FigureSpec(
        "mechanism",
        "mechanism",
        "mechanism",
        "Mechanism",
        "Displacement from the start against the sum of learning rates (slope 1: coherent drift) and against the root "
        "of the sum of their squares (slope 1: diffusion); divergence from the behaviour snapshot by lag; cosine of "
        "the stale part of the field with the distance from the snapshot (above 0 it pushes on); size of that part "
        "against the distance; size of the applied update.",
    ),
    FigureSpec(
        "sensitivity",
        "sensitivity",
        "sensitivity",
        "Sensitivity to the collapse criterion",
        "Outcome of each run when the criterion's threshold rho changes: the collapse index where it collapsed, "
        "otherwise the label. The declared value is 0.5.",
    ),
    FigureSpec(
        "evaluation",
        "evaluation",
        "evaluation",
        "Benchmark scores",
        "Scores of saved policies on the study's benchmarks, with 95% intervals where the evaluation gives them: over "
        "learner updates, or, where no more than the last policy of each run was scored, over the learning rate with "
        "the runs of one rate side by side.",
    ),
)
FIGURES = tuple(spec.name for spec in CATALOGUE)
PUBLISHED_FIGURES = ("boundary", "clock")  # all that the published tables hold data for
FORMATS = ("svg", "pdf", "png", "csv")


def figure_names(study: str) -> tuple[str, ...]:
    """The figures of a study; `published` stands for the paper's own tables."""
    return PUBLISHED_FIGURES if study == "published" else FIGURES


def spec(name: str) -> FigureSpec:
    """The catalogue's entry of that name; KeyError where there is none."""
    return {entry.name: entry for entry in CATALOGUE}[name]
