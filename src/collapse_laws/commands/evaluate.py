"""Score a checkpoint on a benchmark, or collect the scores of a study."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from collapse_laws import gpu_environment
from collapse_laws.errors import UserError
from collapse_laws.runrecord import MANIFEST, read_manifest, write_json
from collapse_laws.study import PARAMS, Cell, Study, load_study

DATA = Path("data/bench")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cell", help="a cell; its checkpoints are scored")
    what.add_argument("--checkpoint", type=Path, help="any checkpoint in Hugging Face format")
    what.add_argument(
        "--collect",
        action="store_true",
        help="write results/<study>/evaluation.csv from all evaluations, and print a table",
    )
    what.add_argument("--list", action="store_true", help="list the registered benchmarks and their defects")
    parser.add_argument("--snapshot", help="learner updates or `final`; default: every checkpoint")
    parser.add_argument("--benchmark", help="default: every benchmark of the study for the model")
    parser.add_argument("--data", type=Path, help=f"folder of benchmark files; default: {DATA}")
    parser.add_argument("--checkpoints", type=Path, help="default: checkpoints/<study>/<cell>")
    parser.add_argument("--out", type=Path, help="the JSON, or with --collect the CSV")
    parser.add_argument("--work", type=Path, help="generations in progress; default: work/<study>/evals/...")


def run(args: argparse.Namespace) -> int:
    if args.list:
        return _list()
    study = load_study(args.params, args.study)
    if args.collect:
        return _collect(study, args.out)
    if not study.evaluation:
        raise UserError(f"params.yaml: study {study.name!r} has no evaluation section.")
    return _evaluate(study, args)


def _evaluate(study: Study, args: argparse.Namespace) -> int:
    from collapse_laws import evaluation_request as requests
    from collapse_laws.evaluate import evaluate

    gpu_environment.enter(study.trainer)
    if args.cell:
        cell = study.cell(args.cell)
        checkpoints = args.checkpoints or Path("checkpoints") / study.name / cell.name
        models = Path("models") / study.name / cell.model
        if args.snapshot == "final" and _saved_nothing(Path("runs") / study.name / cell.name):
            return _write_absence(study, cell, args)
        snapshots = [args.snapshot] if args.snapshot else requests.snapshots_of(checkpoints)
        if not snapshots:
            raise UserError(f"{checkpoints} holds no checkpoint; `collapse-laws train` makes them.")
        subjects = [requests.subject_of(study, cell, s, checkpoints, models) for s in snapshots]
        names = requests.benchmarks_of(study, cell.model)
        settings, place = cell.settings, cell.name
    else:
        subjects = [requests.Subject(args.checkpoint, "final", {"study": study.name, "scale": study.scale})]
        names = list(study.evaluation["benchmarks"])
        settings, place = study.settings, args.checkpoint.name
    chosen = [args.benchmark] if args.benchmark else names
    if args.out and len(subjects) * len(chosen) > 1:
        raise UserError("--out names one file; give --snapshot and --benchmark too.")
    for subject in subjects:
        for name in chosen:
            folder = Path(study.name) / place / subject.snapshot
            result = evaluate(
                subject,
                requests.request_of(study, name, settings),
                data=args.data or Path(study.evaluation.get("data", DATA)),
                out=args.out or Path("evals") / folder / f"{name}.json",
                work=args.work or Path("work") / study.name / "evals" / place / subject.snapshot / name,
            )
            print(_line(place, result))
    return 0


def _saved_nothing(run: Path) -> bool:
    """Whether the record says that its trainer was stopped before its first checkpoint."""
    if not (run / MANIFEST).exists():
        return False
    return read_manifest(run).get("final_checkpoint_updates", run) is None


def _write_absence(study: Study, cell: Cell, args: argparse.Namespace) -> int:
    """Write evaluations without scores and the reason: a run that collapsed at once must not hold up the others."""
    from collapse_laws import evaluation_request as requests

    for name in [args.benchmark] if args.benchmark else requests.benchmarks_of(study, cell.model):
        out = args.out or Path("evals") / study.name / cell.name / "final" / f"{name}.json"
        write_json(out, requests.absence(cell, requests.request_of(study, name, cell.settings)))
        print(f"{cell.name} final {name}: the run was stopped before its first checkpoint; nothing to score")
    return 0


def _line(place: str, result: dict[str, Any]) -> str:
    parts = [
        f"{name} {value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
        for name, value in result["scores"].items()
    ]
    line = f"{place} {result['snapshot']} {result['benchmark']} {result['metric']}: {', '.join(parts)}"
    odd = result.get("math_verify_not_ok", [])
    if odd:
        where = ", ".join(f"{o['problem']}/{o['sample']} ({o['status']})" for o in odd[:20])
        more = f" and {len(odd) - 20} more" if len(odd) > 20 else ""
        line += f"\n  math_verify gave no verdict and counts 0 on problem/sample {where}{more}"
    return line


def _collect(study: Study, out: Path | None) -> int:
    from collapse_laws.evaluation_table import collect, over_snapshots

    evals = Path("evals") / study.name
    table = collect(evals, Path("runs") / study.name, study.planned)
    if table.empty:
        raise UserError(f"{evals} holds no evaluation of {study.name}'s cells; `collapse-laws evaluate` makes them.")
    out = out or Path("results") / study.name / "evaluation.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False)
    wide = over_snapshots(table)
    wide.to_csv(out.with_name("evaluation_over_snapshots.csv"), index=False)
    print(wide.to_string(index=False))
    return 0


def _list() -> int:
    from collapse_laws.tasks import benchmarks

    for name, entry in benchmarks.BENCHMARKS.items():
        print(f"{name}: {entry.title}, {entry.rows} rows, {entry.hub} ({entry.config}/{entry.split})")
        print(f"  revision {entry.revision or 'not known'}; content {benchmarks.content_sha256(name)}")
        print(f"  local file {entry.file}.jsonl; licence: {entry.licence}")
        for defect in entry.defects:
            print(f"  - {defect}")
        for row, reason in entry.flagged.items():
            print(f"  - row {row}: {reason}")
    return 0
