"""A diagnosis as plain text."""

from __future__ import annotations

from collapse_laws.advise.diagnose import Diagnosis
from collapse_laws.advise.readings import step_note
from collapse_laws.outcome import Outcome


def as_text(diagnosis: Diagnosis) -> str:
    """The report that `diagnose` prints, without control characters that the log may have held."""
    log, outcome = diagnosis.log, diagnosis.outcome
    keys = ", ".join(
        f"{role}={key}" for role, key in log.keys.items() if role in ("step", "learner_step", "reward", "lr")
    )
    unit = "synchronisations" if log.counts_synchronisations else "updates"
    lines = [
        f"{log.path}: {outcome.label}",
        f"  read as {log.format}: {log.rows} rows, {log.steps} with a reward, {log.series.updates} {unit}, "
        f"{log.series.duplicates} duplicates dropped; keys {keys}",
    ]
    lines += [f"  note: {note}" for note in log.notes]
    lines.append(f"  {log.exactness}")
    if note := step_note(log):
        lines.append(f"  {note}")
    lines.append("Findings")
    lines += [f"  {verdict.sentence}" for verdict in diagnosis.verdicts]
    if diagnosis.readings:
        lines.append("Around the drop" if around_a_drop(outcome) else "At the end of the run")
        lines += [f"  {_capital(reading.sentence)}" for reading in diagnosis.readings]
    if diagnosis.missing:
        lines.append("What would tell more")
        lines += [f"  {sentence}" for sentence in diagnosis.missing]
    return "\n".join(printable(line) for line in lines)


def around_a_drop(outcome: Outcome) -> bool:
    """Whether the readings are those around a drop, partial or not, and not those at the end."""
    return outcome.first_drop_index is not None or outcome.partial_drop_index is not None


def printable(text: str) -> str:
    """Text without control characters, which a log's names may carry to the terminal."""
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
