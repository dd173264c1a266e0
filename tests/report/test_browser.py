"""The page in a browser: nothing complains, nothing sticks out, titles sort."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape

import pytest

from freetickets.report import comparison_page, read_run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--hide-scrollbars", "--window-size=1600,1200",
)  # fmt: skip

# A window can't be as narrow as a phone; a frame can.
WRAPPER = """<!DOCTYPE html>
{frames}
<pre></pre>
<script>
addEventListener("load", () => {{
  console.log("ready");
  const answers = [...document.querySelectorAll("iframe")].map((frame) => {{
    const page = frame.contentDocument, root = page.documentElement;
    const column = [...page.querySelectorAll("thead tr:last-child th")][3].querySelector("button");
    const rows = page.querySelector("tbody").rows;
    const order = () => [...rows].map((row) => row.cells[0].textContent);
    const before = order();
    column.click();
    const rising = order();
    column.click();
    const falling = order();
    const tables = [...page.querySelectorAll(".scroll")];
    return {{
      width: root.clientWidth,
      content: root.scrollWidth,
      text: parseFloat(frame.contentWindow.getComputedStyle(page.querySelector("td")).fontSize),
      scrolls: tables.some((box) => box.scrollWidth > box.clientWidth),
      figures: [...page.querySelectorAll("svg")].map((svg) => svg.getBoundingClientRect().width),
      before, rising, falling,
    }};
  }});
  document.querySelector("pre").textContent = JSON.stringify(answers);
}});
</script>"""


@pytest.fixture
def browse(tmp_path):
    """Shows a page in frames of some widths; returns what each measures. Errors fail the test."""

    def show(html, widths):
        content = escape(html)
        frames = "".join(
            f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{content}"></iframe>'
            for width in widths
        )
        file = tmp_path / "frames.html"
        file.write_text(WRAPPER.format(frames=frames))
        done = subprocess.run(
            [
                CHROMIUM,
                *FLAGS,
                f"--user-data-dir={tmp_path / 'profile'}",
                "--dump-dom",
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        # The wrapper's own line, which shows that lines are seen, and no other.
        assert re.findall(r'CONSOLE.*?"(.*)"', done.stderr) == ["ready"]
        answer = re.search("<pre>(.*)</pre>\n<script>", done.stdout, re.DOTALL)
        return json.loads(unescape(answer[1]))

    return show


def test_the_page_fits_phones_and_desks_and_its_tables_sort(runs, write_run, browse):
    long = read_run(write_run("a-name-that-is-much-too-long-for-any-table-" * 3))
    html = comparison_page([*runs, long]).html()
    phone, desk = browse(html, [390, 1440])
    assert (phone["width"], desk["width"]) == (390, 1440)
    assert phone["content"] <= 390
    assert desk["content"] <= 1440
    assert phone["scrolls"]
    for shown in (phone, desk):
        assert shown["text"] >= 13
        assert all(300 < width <= shown["width"] for width in shown["figures"])
        # The fourth column is the members' NLL: 0.55 but for the dense network's 0.48.
        assert shown["before"][:2] == ["edst", "dense"]
        assert shown["rising"][0] == "dense"
        assert shown["falling"][-1] == "dense"
