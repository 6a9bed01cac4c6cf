"""Render pages in a headless Chromium and return its measurements."""

import html
import json
import re
import shutil
import subprocess
import tempfile

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
    ),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=2000"),
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason=f"no browser: none of {', '.join(NAMES)} is on the path"
)

# Opens the page in a frame of each width and writes down the measurements.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><title>harness</title>
<body>%s<pre id="found"></pre><script>
const found = {};
const look = (frame) => {
  const page = frame.contentDocument, view = frame.contentWindow;
  const cut = [...page.querySelectorAll("h1,h2,p,dt,dd,th,td,figcaption,a,summary")]
    .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)
    .map((e) => e.textContent.slice(0, 40));
  const pictures = [...page.querySelectorAll("svg")].map((e) => {
    const box = e.getBoundingClientRect();
    return [box.width, box.height];
  });
  return {
    width: page.documentElement.scrollWidth,
    cut, pictures,
    aligned: [...page.querySelectorAll("thead th")].map(
      (e) => view.getComputedStyle(e).textAlign),
    fills: [...page.querySelectorAll("svg > rect")].map(
      (e) => view.getComputedStyle(e).fill),
    paper: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.body).color,
    loaded: view.performance.getEntriesByType("resource").map((e) => e.name),
    headings: [...page.querySelectorAll("h1,h2")].map((e) => e.textContent),
  };
};
addEventListener("load", () => {
  for (const frame of document.querySelectorAll("iframe")) {
    found[frame.width] = look(frame);
  }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script></body>"""


def look_at(text, widths, dark=False):
    """Return the measurements of each width and the lines of the console for a page."""
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(text)}"></iframe>'
        for width in widths
    )
    scheme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/harness.html"
        with open(path, "w", encoding="utf-8") as file:
            file.write(HARNESS % frames)
        process = subprocess.run(
            [
                *(CHROMIUM, *OPTIONS, *scheme, f"--user-data-dir={folder}/profile"),
                *("--dump-dom", f"file://{path}"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    console = [line for line in process.stderr.splitlines() if "CONSOLE" in line]
    match = re.search(r'<pre id="found">(.*?)</pre>', process.stdout, re.DOTALL)
    assert match and match[1], process.stderr
    return json.loads(html.unescape(match[1])), console
