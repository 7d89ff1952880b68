"""From params.yaml to Tables 1 to 3, figures and one page: every rule runs one command of `collapse-laws`.

snakemake --cores all                                    # the active study, to its report
snakemake --cores all results/table1.csv --config study=smoke
snakemake --cores all runs/proxy/CELL/run.json           # one cell, of whatever study
snakemake --profile slurm results/table1.csv --config study=paper
"""

from snakemake.utils import min_version

min_version("9.20")


include: "workflow/rules/common.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/analyse.smk"
include: "workflow/rules/report.smk"


rule all:
    """Tables and pages of the active study, and the page of the published tables."""
    default_target: True
    input:
        expand("results/table{number}.csv", number=[1, 2, 3]),
        f"reports/{STUDY}/index.html",
        "reports/published/index.html",
    localrule: True


rule runs:
    """Every training run of the active study."""
    input:
        [run_json(cell) for cell in cells(STUDY)],
    localrule: True


rule checked_jobs:
    """Every training job of the active study in check-only mode: a rehearsal on the cluster, in minutes."""
    input:
        [f"work/check/{STUDY}/{cell.name}.txt" for cell in cells(STUDY)],
    localrule: True
