# Benchmark scores of saved policies.
from collapse_laws.evaluation_request import benchmarks_of, is_current as score_is_current, request_of


def evaluated_run(wildcards):
    """The run behind a score, whose age alone scores nothing again; a run that is about to be made again does.

    So does a score of other settings of the run or of the evaluation.
    """
    cell = cell_of(wildcards)
    run = run_json(cell)
    if not record_is_current(wildcards.study, wildcards.cell):
        return run
    score = "evals/{study}/{cell}/{snapshot}/{benchmark}.json".format(**wildcards)
    request = checked(request_of, study_of(wildcards.study), wildcards.benchmark, cell.settings)
    return [ancient(run), unless(score_is_current(Path(score), cell, request), score)]


rule evaluate:
    input:
        run=evaluated_run,
    output:
        "evals/{study}/{cell}/{snapshot}/{benchmark}.json",
    log:
        "logs/evaluate/{study}/{cell}/{snapshot}/{benchmark}.log",
    resources:
        nodes=1,
        gpu=by_device(cpu=0, gpu=1, verl=1),
        cpus_per_gpu=by_device(cpu=0, gpu=4, verl=8),
        mem_mb=by_device(cpu=1500, gpu=16_000, verl=64_000),
        runtime=by_device(cpu=30, gpu=120, verl=240),
    params:
        checkpoints="checkpoints/{study}/{cell}",
    shell:
        "{COMMAND} evaluate --study {wildcards.study} --cell {wildcards.cell} --snapshot {wildcards.snapshot}"
        " --benchmark {wildcards.benchmark} --checkpoints {params.checkpoints} --out {output} >{log} 2>&1"


def scores(study):
    """Scores of the last policy of every cell of the extent, on the benchmarks that the study asks for its model."""
    return [
        f"evals/{study}/{cell.name}/final/{benchmark}.json"
        for cell in cells(study)
        for benchmark in benchmarks_of(study_of(study), cell.model)
    ]
