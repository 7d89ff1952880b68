"""The page in headless Chromium: no error on the console, no request, no sideways scrolling, no
serious fault by axe-core.

Needs `chromium`; axe-core from npm is looked for under COLLAPSE_LAWS_AXE (a path to axe.min.js) or
node_modules.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from report_synthetic import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-extensions"
).split()
PROBE = """<pre id="probe"></pre><script>
addEventListener("load", async () => {
  const root = document.documentElement;
  const mark = document.querySelector("#figure-boundary .has-tip");
  mark?.dispatchEvent(new PointerEvent("pointerenter", {clientX: 9, clientY: 90}));
  const found = {wide: root.scrollWidth, seen: root.clientWidth, axe: null,
    tip: document.querySelector(".tip")?.textContent ?? "",
    resources: performance.getEntriesByType("resource").map((entry) => entry.name)};
  if (window.axe) {
    const result = await axe.run(document, {resultTypes: ["violations"]});
    found.axe = result.violations.map(
      (v) => [v.id, v.impact, v.nodes.length, v.nodes[0].html.slice(0, 160)]);
  }
  document.getElementById("probe").textContent = JSON.stringify(found);
});
</script>"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)"),
]


def browse(address: str, tmp_path: Path, *options: str) -> tuple[str, str]:
    """The page's DOM after loading, and what went to the console."""
    command = [
        CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
        "--virtual-time-budget=20000", *options, "--dump-dom", address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


class Recorder(SimpleHTTPRequestHandler):
    """Serves a folder and notes what is asked of it."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args) -> None:
        pass


def probe(page: Path, tmp_path: Path, *options: str, axe: Path | None = None) -> dict:
    """What a script inside the page finds: widths, the hover text, and axe-core's violations."""
    html = page.read_text()
    script = f"<script>{axe.read_text()}</script>" if axe else ""
    copy = tmp_path / "probed.html"
    copy.write_text(html.replace("</body>", f"{script}{PROBE}</body>"))
    dom, console = browse(copy.as_uri(), tmp_path, *options)
    assert console == ""
    return json.loads(unescape(re.search(r'<pre id="probe">([^<]*)</pre>', dom)[1]))


@pytest.fixture
def page(two_arms: Path) -> Path:
    return two_arms.parent / "reports/proxy/index.html"


def test_no_console_error_and_no_request(page, tmp_path):
    """Served over HTTP, the page asks for itself alone; resource timing lists what it would ask of other hosts."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "index.html").write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    Recorder.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Recorder, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    dom, console = browse(f"http://127.0.0.1:{server.server_port}/index.html", tmp_path)
    server.shutdown()
    thread.join()
    server.server_close()
    found = json.loads(unescape(re.search(r'<pre id="probe">([^<]*)</pre>', dom)[1]))
    assert 'id="provenance"' in dom
    assert console == ""
    assert Recorder.asked == ["/index.html"]
    assert [name for name in found["resources"] if not name.startswith("data:")] == []


def test_hover_values_and_no_sideways_scrolling(page, tmp_path):
    found = probe(page, tmp_path, "--window-size=1280,900")
    assert found["wide"] == found["seen"]
    assert found["tip"].startswith("S=")


def test_readable_at_the_width_of_a_phone(page, tmp_path):
    """A window is never narrower than 500 pixels, so the page is laid out in a frame of 390."""
    quoted = json.dumps(page.read_text()).replace("</", "<\\/")
    frame = tmp_path / "frame.html"
    frame.write_text(
        '<iframe id="f" width="390" height="800" style="border:0"></iframe><pre '
        'id="out"></pre><script>'
        f"const html = {quoted};"
        """const f = document.getElementById("f");
        f.addEventListener("load", () => setTimeout(() => {
          const root = f.contentDocument.documentElement;
          const past = [...f.contentDocument.querySelectorAll("body *")].filter(
            (e) => !e.closest(".scroll, .drawing") &&
              e.getBoundingClientRect().right > root.clientWidth + 1);
          document.getElementById("out").textContent = root.scrollWidth + " " + root.clientWidth +
            " " + past.map((e) => e.outerHTML.slice(0, 80)).slice(0, 5);
        }, 500)); f.srcdoc = html;</script>"""
    )
    dom, console = browse(frame.as_uri(), tmp_path)
    wide, seen, culprits = re.search(r'<pre id="out">(\d+) (\d+) ([^<]*)</pre>', dom).groups()
    assert console == ""
    assert (wide, culprits) == (seen, "")


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_axe_finds_no_serious_fault(page, tmp_path, mode):
    places = [os.environ.get("COLLAPSE_LAWS_AXE", ""), ROOT / "node_modules/axe-core/axe.min.js"]
    axe = next((Path(place) for place in places if place and Path(place).is_file()), None)
    if axe is None:
        pytest.skip("needs axe-core: `npm install axe-core` here, or set COLLAPSE_LAWS_AXE")
    scheme = "0" if mode == "dark" else "1"
    found = probe(page, tmp_path, f"--blink-settings=preferredColorScheme={scheme}", axe=axe)
    assert [fault for fault in found["axe"] if fault[1] in ("serious", "critical")] == []
