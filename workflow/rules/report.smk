# Tables, figures and pages.
from collapse_laws.figures.catalogue import FORMATS, figure_names

TABLES = [*(f"table{n}{twin}" for n in (1, 2, 3) for twin in ("", "_twin")), "sensitivity"]
TABLE_FORMATS = ["csv", "tex", "html"]


def captioned(path, name, category):
    """A result that `snakemake --report` shows under its caption."""
    return report(
        path,
        caption=f"../report/{name}.rst",
        category=category,
        labels={"study": "{study}", "name": name},
    )


def figure_files(study, prefix="results/{study}"):
    return [f"{prefix}/figures/{name}.{suffix}" for name in figure_names(study) for suffix in FORMATS]


def table_files(prefix):
    """Tables with their twins, paper against reproduced, and the numbers for a paper's text and for DVC."""
    tables = [f"{prefix}/{name}.{suffix}" for name in TABLES for suffix in TABLE_FORMATS]
    return [*tables, f"{prefix}/macros.tex", f"{prefix}/metrics.json"]


rule tables:
    """Tables 1 to 3 of a study."""
    input:
        outcomes,
        laws="results/{study}/laws.json",
        scores=lambda wildcards: scores(wildcards.study),
        knobs="reference/knobs.csv",
        published=rules.published.input,
    output:
        table_files("results/{study}"),
    log:
        "logs/tables/{study}.log",
    localrule: True
    params:
        cells=cell_names,
    shell:
        "{COMMAND} tables --study {wildcards.study} >{log} 2>&1"


rule active_table:
    """results/table1.csv and its two sisters are the active study's."""
    input:
        f"results/{STUDY}/table{{number}}.csv",
    output:
        report(
            "results/table{number}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels={"study": STUDY, "name": "Table {number}"},
        ),
    log:
        "logs/active_table/{number}.log",
    localrule: True
    params:
        study=STUDY,
    shell:
        "cp {input} {output} 2>{log}"


rule figures:
    """Every figure of a study, with the numbers behind it."""
    input:
        outcomes,
        laws="results/{study}/laws.json",
        scores=lambda wildcards: scores(wildcards.study),
    output:
        [
            (captioned(path, Path(path).stem, "Figures") if path.endswith(".svg") else path)
            for path in figure_files("any")
        ],
    log:
        "logs/figures/{study}.log",
    localrule: True
    params:
        cells=cell_names,
    shell:
        "{COMMAND} figures --study {wildcards.study} >{log} 2>&1"


rule page:
    """The one-page report of a study."""
    input:
        rules.tables.output,
        rules.figures.output,
    output:
        captioned("reports/{study}/index.html", "page", "Page"),
    log:
        "logs/report/{study}.log",
    localrule: True
    shell:
        "{COMMAND} report --study {wildcards.study} >{log} 2>&1"


rule published_page:
    """Tables, figures and page of the published results."""
    input:
        "results/published/laws.json",
    output:
        table_files("results/published"),
        figure_files("published", "results/published"),
        page="reports/published/index.html",
    log:
        "logs/report/published.log",
    localrule: True
    shell:
        "({COMMAND} tables --study published && {COMMAND} figures --study published && {COMMAND} report --study published) >{log} 2>&1"


rule picture:
    """The workflow as a picture, for the README: its rules, from params.yaml to the page."""
    output:
        "docs/workflow.svg",
    log:
        "logs/picture.log",
    localrule: True
    shell:
        "({sys.executable} -m snakemake --nolock --quiet all --rulegraph dot | dot -Tsvg >{output}) 2>{log}"
