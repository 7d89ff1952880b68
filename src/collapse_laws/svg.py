"""Making a drawn SVG part of a page: ids that cannot collide, no references outwards, colours that
follow the page's mode."""

from __future__ import annotations

import re
from html import escape

_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)
_STYLE = re.compile(r"<style[^>]*>.*?</style>\s*", re.DOTALL)
_NAMESPACE = re.compile(r'\sxmlns(:\w+)?="[^"]*"')
_ID = re.compile(r'\sid="([^"]*)"')
_USED = re.compile(r'(?:href="#|url\(#)([^")]*)')
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_WIDTH = re.compile(r'\swidth="([\d.]+)pt"')
LARGEST = 1.55  # pixels a point, so that a small figure is not blown up to the page's width
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)


def inline(svg: str, name: str, title: str, twins: dict[str, str]) -> str:
    """The SVG for inclusion in HTML: ids prefixed by `name`, known colours as CSS variables, named by `title`."""
    svg = _HEAD.sub("", svg, count=1)
    svg = _COMMENT.sub("", _STYLE.sub("", _METADATA.sub("", svg)))
    used = set(_USED.findall(svg))
    svg = _ID.sub(lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = _NAMESPACE.sub("", svg).replace("xlink:href=", "href=")
    svg = svg.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    svg = _COLOUR.sub(lambda m: f"var({variable(m[0])})" if m[0] in twins else m[0], svg)
    size = _WIDTH.search(svg)
    widest = f' style="max-width:{float(size[1]) * LARGEST:.0f}px"' if size else ""
    svg = re.sub(r'\s(width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"{widest}', 1).strip()


def variable(colour: str) -> str:
    """The CSS variable of a light page's colour."""
    return f"--c{colour[1:]}"


def stylesheet(twins: dict[str, str]) -> str:
    """The variables of both modes; printing uses the light ones."""
    light = "".join(f"{variable(colour)}:{colour};" for colour in twins)
    dark = "".join(f"{variable(colour)}:{twin};" for colour, twin in twins.items())
    return f":root{{{light}}}@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"
