# The expensive rules. No timestamp makes them run: a record is made again only where it is missing, or where it says
# that it was made with other settings or other training source than there are now.
from collapse_laws.verl import gpus as verl_gpus


def starting_files(cell):
    """The last file written of all that a cell starts from: its model and, through verl, the prepared problems."""
    folder = f"models/{cell.study}/{cell.model}"
    if cell.trainer == "verl":
        return [f"{folder}/source.json", f"data/{cell.study}/prepare.json"]
    return [f"{folder}/warmstart.json"]


def gpus(wildcards):
    """GPUs of a training job."""
    cell = cell_of(wildcards)
    if cell.trainer == "verl":
        system = cell.settings["system"]
        return system["training_gpus"] + system["rollout_gpus"]
    return int(cell.device == "cuda")


def jobs_run_here():
    """Whether this Snakemake itself runs the jobs: not a dry run, not one that hands them to a cluster, nor one of those."""
    runs = workflow.executor_plugin is not None and not (workflow.dryrun or workflow.touch)
    return runs and workflow.local_exec and workflow.is_main_process


def need_gpus(cell):
    """End Snakemake with one sentence where a run's GPUs are not here: now, not after models and data were fetched."""
    try:
        verl_gpus.require(cell)
    except UserError as error:
        raise SystemExit(str(error)) from None


def starting_point(wildcards):
    """What a cell starts from, and CHANGED, which is newer than the record only where the record is not current.

    A file's age alone retrains nothing. A current record needs no start any more: making one for another cell must not
    count as news for this one. That of a run which is to be made must not be ancient(): Snakemake looks no further down
    an ancient file that it makes again.
    """
    cell = cell_of(wildcards)
    current = record_is_current(wildcards.study, wildcards.cell)
    if not current and cell.trainer == "verl" and jobs_run_here():
        need_gpus(cell)
    return [unless(current, run_json(cell)), *([] if current else starting_files(cell))]


def model_settings(wildcards):
    """CHANGED, newer than the starting checkpoint only where that is not current."""
    cell = next(c for c in study_of(wildcards.study).planned if c.model == wildcards.model)
    return unless(start_is_current(cell), starting_files(cell)[0])


rule warmstart:
    """The starting checkpoint of a study's model."""
    input:
        model_settings,
    output:
        "models/{study}/{model}/warmstart.json",
    log:
        "logs/warmstart/{study}/{model}.log",
    benchmark:
        "benchmarks/warmstart/{study}/{model}.tsv"
    resources:
        mem_mb=1500,
        runtime=60,
    shell:
        "{COMMAND} warmstart --study {wildcards.study} --model {wildcards.model}"
        " --out models/{wildcards.study}/{wildcards.model} >{log} 2>&1"


rule fetch:
    """A starting model from the Hub, for a study that trains through verl."""
    input:
        model_settings,
    output:
        "models/{study}/{model}/source.json",
    log:
        "logs/fetch/{study}/{model}.log",
    localrule: True
    shell:
        "{COMMAND} prepare --study {wildcards.study} --model {wildcards.model}"
        " --out models/{wildcards.study}/{wildcards.model} >{log} 2>&1"


def data_settings(wildcards):
    """CHANGED, newer than the prepared problems only where those are not current."""
    path = f"data/{wildcards.study}/prepare.json"
    return unless(prepared_is_current(Path(path), study_of(wildcards.study)), path)


rule prepare:
    """The training and validation problems of a study that trains through verl."""
    input:
        data_settings,
    output:
        "data/{study}/prepare.json",
    log:
        "logs/prepare/{study}.log",
    localrule: True
    shell:
        "{COMMAND} prepare --study {wildcards.study} --out data/{wildcards.study} >{log} 2>&1"


rule train:
    """One run. Checkpoints are no output, and neither is the state of a run in progress.

    Snakemake deletes the outputs of a failed job and DVC those of a stage before it runs it: a preempted run keeps its
    state in work/, which neither knows, and leaves the record and the checkpoints when it has finished.
    """
    input:
        starting_point,
    output:
        steps="runs/{study}/{cell}/steps.jsonl",
        snapshots="runs/{study}/{cell}/snapshots.jsonl",
        run="runs/{study}/{cell}/run.json",
    log:
        "logs/train/{study}/{cell}.log",
    benchmark:
        "benchmarks/train/{study}/{cell}.tsv"
    threads: 1
    resources:
        nodes=1,
        gpu=gpus,
        cpus_per_gpu=by_device(cpu=0, gpu=4, verl=8),
        mem_mb=by_device(cpu=1500, gpu=16_000, verl=400_000),
        runtime=by_device(cpu=120, gpu=720, verl=4 * 24 * 60),
    params:
        model=lambda wildcards: f"models/{wildcards.study}/{cell_of(wildcards).model}",
        work="work/{study}/{cell}",
        checkpoints="checkpoints/{study}/{cell}",
        out="runs/{study}/{cell}",
    shell:
        "{COMMAND} train --study {wildcards.study} --cell {wildcards.cell} --model-dir {params.model}"
        " --work {params.work} --checkpoints {params.checkpoints} --out {params.out} >{log} 2>&1"


rule check:
    """A training job that only asks whether it would start: verl takes the configuration, Slurm grants the GPUs."""
    output:
        "work/check/{study}/{cell}.txt",
    log:
        "logs/check/{study}/{cell}.log",
    resources:
        nodes=1,
        gpu=gpus,
        cpus_per_gpu=by_device(cpu=0, gpu=4, verl=8),
        mem_mb=by_device(cpu=1500, gpu=16_000, verl=400_000),
        runtime=10,
    params:
        settings=lambda wildcards: cell_of(wildcards).digest,
    shell:
        "{COMMAND} train --study {wildcards.study} --cell {wildcards.cell} --check-only >{output} 2>{log}"
