# From run records to outcomes and laws: seconds, so plain inputs, and timestamps may make them run.


rule extract:
    """Outcome of one run; a record made with other settings than params.yaml's is refused."""
    input:
        rules.train.output,
    output:
        "results/{study}/cells/{cell}.json",
    log:
        "logs/extract/{study}/{cell}.log",
    localrule: True
    params:
        settings=lambda wildcards: cell_of(wildcards).digest,
        reference=lambda wildcards: cell_of(wildcards).reference_lr_budget,
    shell:
        "{COMMAND} extract --study {wildcards.study} --cell {wildcards.cell} >{log} 2>&1"


def outcomes(wildcards):
    return [f"results/{wildcards.study}/cells/{cell.name}.json" for cell in cells(wildcards.study)]


def cell_names(wildcards):
    """As a parameter: a cell that left the grid changes no file's time, and must change the results all the same."""
    return [cell.name for cell in cells(wildcards.study)]


rule laws:
    """Boundary and clock of a study, from every outcome that counts: those of the extent and others that are there."""
    input:
        outcomes,
    output:
        "results/{study}/laws.json",
    log:
        "logs/laws/{study}.log",
    localrule: True
    params:
        cells=cell_names,
    shell:
        "{COMMAND} laws --study {wildcards.study} >{log} 2>&1"


rule published:
    """The published tables through the same estimators."""
    input:
        PUBLISHED_TABLES,
    output:
        "results/published/laws.json",
    log:
        "logs/published.log",
    localrule: True
    shell:
        "{COMMAND} published >{log} 2>&1"


rule simulate:
    """The estimators checked on simulated studies whose boundary and clock are known."""
    output:
        expand("results/validation/{name}", name=["validation.json", "studies.csv"]),
    log:
        "logs/simulate.log",
    localrule: True
    threads: 2
    resources:
        mem_mb=2000,
        runtime=60,
    shell:
        "{COMMAND} simulate --jobs {threads} --out results/validation >{log} 2>&1"
