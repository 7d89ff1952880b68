# The expensive rules. No timestamp makes them run: a record is made again only where it is missing, or where it says
# that it was made with other settings or other training source than there are now.


def starting_point(wildcards):
    """What a cell starts from, and CHANGED, which is newer than the record only where the record is not current.

    Both are ancient(), so that a file's age alone retrains nothing. Where the record is current and its starting model
    was not pulled, the model is left out: making it for another cell would otherwise count as news for this one.
    """
    cell = cell_of(wildcards)
    current = record_is_current(wildcards.study, wildcards.cell)
    start = Path(
        "data/ready.json" if cell.trainer == "verl" else model_json(wildcards, cell)
    )
    if not current:
        mark_changed(run_json(cell))
    elif not os.path.exists(CHANGED):
        mark_changed("nothing")
    files = {"changed": ancient(CHANGED) if current else CHANGED}
    if start.exists() or not current:
        files["start"] = ancient(str(start))
    return files


def model_json(wildcards, cell):
    return f"models/{cell.study}/{cell.model}/warmstart.json"


rule warmstart:
    """The starting checkpoint of a study's model."""
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


rule train:
    """One run. Checkpoints are no output, and neither is the state of a run in progress.

    Snakemake deletes the outputs of a failed job and DVC those of a stage before it runs it: a preempted run keeps its
    state in work/, which neither knows, and leaves the record and the checkpoints when it has finished.
    """
    input:
        unpack(starting_point),
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
        gpu=by_device(cpu=0, gpu=1, verl=8),
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
