"""Reports: what is missing or open is shown as such, and the page works in a browser."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from attnlab.learned import CapturedHead
from attnlab.survey import Settings, plan, run, verify_store, write_report
from attnlab.survey._summary import budgets, closings, correlations

from .helpers import line_heads

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def cell(head=0, window=0, lower=2, upper=3, **other):
    numbers = {"svd_lower": 1, "svd_upper": 6, "row_cover": 7, "cross": 5, "svd_dimension": upper}
    where = {"model": "m", "beta": 1.0, "eps": 0.1, "layer": 0, "head": head, "window": window}
    ends = {"lower": lower, "upper": upper, "problem": None}
    return {**where, **numbers, **ends, **other}


NOTHING = {"lower": None, "upper": None, "svd_dimension": None, "problem": "why"}


def test_budget_over_windows_brackets_the_largest_rank():
    (b,) = budgets([cell(window=0, lower=2, upper=3), cell(window=1, lower=1, upper=5)])
    assert (b.lower, b.upper, b.gap, b.windows, str(b)) == (2, 5, 3, 2, "5 (>= 2)")
    (b,) = budgets([cell(lower=4, upper=4)])
    assert str(b) == "4"
    (b,) = budgets([cell(window=0), cell(window=1, **NOTHING)])
    assert (b.lower, b.gap, b.problem, str(b)) == (None, None, "why", "no data")


def test_closing_counts_only_what_has_numbers():
    cells = [cell(0), cell(1, lower=3), cell(2, lower=1, upper=4), cell(3, **NOTHING)]
    (c,) = closings(cells)
    assert (c.cells, c.missing, c.closed, c.share, c.gap, c.svd_gap, c.upper) == (4, 1, 1, 1 / 3, 1, 5, 3)
    (c,) = closings([cell(**NOTHING)])
    assert (c.share, c.gap, c.relative, c.svd_gap) == (None,) * 4


def test_correlation_of_a_monotone_relation_is_one_and_of_a_constant_undefined():
    found = {c.against: c for c in correlations([cell(i, upper=i + 2) for i in range(12)])}
    assert found["upper"].value == pytest.approx(1)
    assert found["upper"].low == pytest.approx(1)
    assert found["cross"].value is None
    noise = np.random.default_rng(0).permutation(12)
    found = {
        c.against: c for c in correlations([cell(i, upper=i + 2, cross=int(noise[i])) for i in range(12)])
    }
    mixed = found["cross"]
    assert mixed.low < mixed.value < mixed.high
    assert mixed.heads == 12
    assert all(c.value is None for c in correlations([cell(0), cell(1)]))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Four heads at two temperatures, one of them without numbers, one bracket made open by hand."""
    out = tmp_path_factory.mktemp("report") / "store"
    settings = Settings((0.1, 0.5))
    bad = CapturedHead("</script><b>model", "0" * 64, 1, 1, 0, np.full((8, 8), np.nan, np.float32))
    good = [CapturedHead("</script><b>model", "1", h.layer, h.head, 0, h.logits) for h in line_heads(3)]
    run(plan([*good, bad], [1.0, 2.0], settings), out, settings)
    write_report(out, verify_store(out))
    return out


def test_markdown_says_what_is_missing(store):
    text = (store / "report.md").read_text()
    assert "- without numbers: 4\n" in text
    assert "- proved from the stored certificates: 12 of 12 cells\n" in text
    assert "| 1.1 | no data | no data |" in text
    for name in text.split("](figures/")[1:]:
        path = store / "figures" / name.split(")")[0]
        assert path.is_file()
        assert path.with_suffix(".png").is_file()


def test_a_store_without_cells_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no survey"):
        write_report(tmp_path)


PROBE = """<script type="module">
const said = {};
const texts = selector => [...document.querySelectorAll(selector)].map(node => node.textContent);
const column = () => texts("#budgets tbody td:nth-child(3)");
said.facts = texts("#facts dd");
said.maps = texts("#maps figcaption");
said.missing = document.querySelectorAll("#maps td.none").length;
const header = document.querySelectorAll("#budgets th button")[2];
header.click();
said.ascending = column();
header.click();
said.descending = column();
const hover = node => node.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
hover(document.querySelector("#maps td[data-tip]:not(.none)"));
const tip = document.getElementById("tip");
said.tip = [getComputedStyle(tip).display, tip.textContent];
hover(document.querySelector("#plots g[data-tip]"));
said.plot = tip.textContent;
hover(document.querySelector("h1"));
said.hidden = getComputedStyle(tip).display;
const beta = document.getElementById("beta");
said.beta = beta.value;
beta.value = "2";
beta.dispatchEvent(new Event("change"));
hover(document.querySelector("#maps td[data-tip]"));
said.other = tip.textContent;
document.body.innerHTML = "";
document.title = JSON.stringify(said);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH to look at the page with")
def test_page_sorts_and_answers_the_pointer_in_a_browser(store, tmp_path):
    page = (store / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    (tmp_path / "probe.html").write_text(page.replace("</body>", PROBE))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    browser = subprocess.run(
        [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path}/probe.html"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    title = browser.stdout.split("<title>")[1].split("</title>")[0]
    said = json.loads(title.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert len(said["maps"]) == 2 * 3
    assert said["missing"] == 2 * 3
    assert "12 of 12 cells" in said["facts"]
    ranks = [int(text.split()[0]) for text in said["ascending"][:-1]]
    assert ranks == sorted(ranks)
    assert said["ascending"][-1] == said["descending"][-1] == "no data"
    assert said["descending"][:-1] == said["ascending"][-2::-1] or len(set(ranks)) < 3
    assert said["tip"][0] == "block"
    assert "layer 0, head 0, beta 1, eps 0.1: r = " in said["tip"][1]
    assert "rank-lower-1d" in said["tip"][1]
    assert "SVD dimension" in said["plot"]
    assert said["hidden"] == "none"
    assert (said["beta"], "beta 2" in said["other"]) == ("1", True)
