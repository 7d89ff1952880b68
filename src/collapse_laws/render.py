"""A table as CSV, LaTeX (booktabs) and HTML; every text is escaped, and equal tables give equal bytes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from collapse_laws.tables import Table

TEMPLATES = Path(__file__).parent / "templates"
_EXPONENT = re.compile(r"(\de)-(\d)")
_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "†": r"\textsuperscript{\textdagger}",
    "∞": r"\ensuremath{\infty}",
}


@cache
def environment() -> jinja2.Environment:
    """The templates, with HTML escaping on and no undefined names."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["nobreak"] = _nobreak
    made.globals["css"] = Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))
    return made


def _nobreak(text: str) -> str:
    """The text with numbers such as 3.2e-6 and equations kept on one line."""
    return _EXPONENT.sub("\\1\u2011\\2", text).replace(" = ", "\u00a0=\u00a0")


def csv_text(table: Table) -> str:
    """The tidy form as CSV."""
    return table.tidy.to_csv(index=False, float_format="%.10g", lineterminator="\n")


def tex_text(text: str) -> str:
    """Plain text for LaTeX."""
    return "".join(_TEX.get(character, character) for character in text)


def latex_text(table: Table) -> str:
    """The display form as a table environment; needs the package booktabs."""
    frame = table.display
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex_text(f'{table.title}. {table.caption}')}}}",
        rf"\label{{tab:{''.join(c for c in table.name if c.isalnum())}}}",
        rf"\begin{{tabular}}{{{'l' * len(frame.columns)}}}",
        r"\toprule",
        _tex_row(frame.columns),
        r"\midrule",
        *(_tex_row(row) for row in frame.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {tex_text(note)}}}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex_row(values) -> str:
    return " & ".join(tex_text(str(value)) for value in values) + r" \\"


def html_fragment(table: Table) -> Markup:
    """The display form as a scrollable HTML table with its notes."""
    template = environment().get_template("table.html.j2")
    return Markup(template.render(table=table, rows=table.display.itertuples(index=False)))


def html_text(table: Table) -> str:
    """A whole small HTML document with the table alone."""
    return environment().get_template("table_page.html.j2").render(table=table, body=html_fragment(table))


def write_table(table: Table, directory: Path) -> None:
    """Write <directory>/<name>.{csv,tex,html}."""
    directory.mkdir(parents=True, exist_ok=True)
    for suffix, text in (
        ("csv", csv_text(table)),
        ("tex", latex_text(table)),
        ("html", html_text(table)),
    ):
        write_text(directory / f"{table.name}.{suffix}", text)


def write_text(path: Path, text: str) -> None:
    """Write a file through a rename, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)
