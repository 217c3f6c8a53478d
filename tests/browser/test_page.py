"""What a person does with the page: looks, fills in the form, waits, compares, loses the server."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tallyroom.simulation import Federation
from tests.browser.conftest import COMMAND, SIZES, Served, Window

Open = Callable[..., Window]
axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe is not installed")


def violations(window: Window) -> list[tuple[str, list[str]]]:
    found: dict[str, Any] = axe.Axe().run(window.page)
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found["violations"]
    ]


def only_run(served: Served) -> Path:
    (folder,) = [each for each in served.folder.iterdir() if each.is_dir()]
    return folder


def overflow(window: Window) -> int:
    """Pixels by which the page is wider than its window."""
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(window.page.evaluate(wide))


def start(window: Window, statistic: str, action: str = "run", **options: str) -> None:
    page = window.page
    page.get_by_role("button", name="New run").click()
    page.get_by_label("statistic", exact=True).select_option(statistic)
    page.wait_for_function(
        "name => document.querySelector('legend')?.textContent.endsWith(name)", arg=statistic
    )
    if action != "run":
        page.get_by_label("do", exact=True).select_option(action)
        page.locator("select[multiple]").wait_for()
    for name, value in options.items():
        box = page.locator(f'[name="--{name.replace("_", "-")}"]')
        folded = page.locator("details:not([open])", has=box)
        if folded.count():
            folded.locator("summary").click()
        if box.evaluate("each => each.tagName") == "SELECT":
            box.select_option(value.split())
        else:
            box.fill(value)
    page.get_by_role("button", name="Start").click()


def test_a_run_from_the_form_to_its_answer(served: Served, window: Open) -> None:
    first = window()
    start(first, "mean", parties="40", servers="3", epsilon="2", seed="7")
    first.expect("main h2 .state", "done")
    result = json.loads((only_run(served) / "result.json").read_text())
    first.expect(".big", f"{result['estimate']:.5f}"[:6])
    first.expect("main", "95 %")
    first.expect("main", "any 2 of them may collude")
    first.expect("main", "40 submitted")
    sizes = result["communication"]["links"]["party->server"]
    first.expect("main", f"{sizes['bytes']:,}")
    first.expect("main", "server-2")
    progress = json.loads((only_run(served) / "progress.json").read_text())
    assert progress["predicted"] == {"party->server": sizes["bytes"]}
    assert violations(first) == []


def test_it_can_be_read_at_every_width_and_colour(served: Served, window: Open) -> None:
    words = ["run", "ecdf", "--parties", "60", "--dropout", "0.1", "--aggregator", "fss"]
    out = ["--out", "runs/curve", "--seed", "3"]
    here = served.folder.parent
    subprocess.run([*COMMAND, *words, *out], check=True, capture_output=True, cwd=here)
    for (shown, size), colours in product(SIZES.items(), ("light", "dark")):
        one = window(size, colours)
        one.page.locator("nav li button").first.click()
        one.expect("main h2 .state", "done")
        one.expect("main", "54 submitted")
        one.expect("main", "6 gone")
        one.picture(f"serve-run-{shown}-{colours}")
        checked = shown == "desktop"  # colours are the same at every width
        assert (violations(one) if checked else [], overflow(one)) == ([], 0)
        one.page.get_by_role("button", name="New run").click()
        one.page.get_by_role("button", name="Start").wait_for()
        one.picture(f"serve-form-{shown}-{colours}")
        assert (violations(one) if checked else [], overflow(one)) == ([], 0)


def test_what_was_filled_in_stays_when_the_form_changes(served: Served, window: Open) -> None:
    """Also what is typed while the next form is still under way, and only the last one is shown."""
    one = window()
    one.page.get_by_role("button", name="New run").click()
    one.page.get_by_role("button", name="Start").wait_for()
    one.page.locator('[name="--parties"]').fill("33")
    one.page.evaluate(
        """() => {
          const { statistic, "--epsilon": epsilon } = document.querySelector("form").elements;
          for (const name of ["ecdf", "mean", "histogram"]) {
            statistic.value = name;
            statistic.dispatchEvent(new Event("change"));
          }
          epsilon.focus();
          epsilon.value = "0.5";
        }"""
    )
    one.expect("legend", "histogram")
    boxes = [one.page.locator(f'[name="--{each}"]') for each in ("parties", "epsilon")]
    assert [box.input_value() for box in boxes] == ["33", "0.5"]
    assert one.page.evaluate("document.activeElement.name") == "--epsilon"
    one.page.wait_for_timeout(300)
    one.expect("legend", "histogram")


def test_a_run_that_fails_says_why(served: Served, window: Open) -> None:
    one = window()
    start(one, "mean", epsilon="2", cap="1")
    one.expect("main h2 .state", "failed")
    one.expect(".loud", "epsilon 2 refused: 1 of 1 is left in the ledger")
    start(one, "mean", lower="3", upper="1")
    one.page.wait_for_function("() => document.querySelectorAll('nav li').length === 2")
    one.expect("main .loud", "Why it failed: tally: --lower 3")


def test_aggregators_and_runs_side_by_side(served: Served, window: Open) -> None:
    one = window()
    start(one, "mean", "compare", aggregator="additive shamir", parties="8")
    one.expect("main h3", "Side by side")
    one.expect("main", "shamir")
    one.expect("main h2", "mean, compared done")
    # what is known of a ledger or of parties is of the last aggregator alone
    assert one.page.locator("main h3").all_inner_texts() == ["Side by side", "Last events", "Files"]
    assert violations(one) == []
    for aggregator in ("additive", "masking"):
        with Federation(8, aggregator=aggregator) as federation:
            federation.run("mean").write(served.folder / aggregator)
    one.page.wait_for_function("() => document.querySelectorAll('nav li').length === 3")
    boxes = one.page.get_by_role("checkbox", name="Put mean, ")
    boxes.nth(0).check()
    boxes.nth(1).check()
    one.page.get_by_role("button", name="Side by side").click()
    one.expect("main table", "mean, additive")
    one.expect("main table", "mean, masking")
    assert violations(one) == []


def test_ten_thousand_parties(served: Served, window: Open) -> None:
    one = window()
    start(one, "histogram", parties="10000", data="synthetic:scores?n=10000")
    one.expect("main h2 .state", "done", 60)
    label = one.page.locator("canvas.parties").get_attribute("aria-label")
    assert label == "10,000 parties: 0 waiting, 10,000 submitted, 0 refused, 0 gone"
    drawn = one.page.locator("svg.plot").get_attribute("aria-label")
    assert drawn.endswith("from 0 to 1")  # the last bin has its width


HOSTILE = {
    "endless": {"phase": "submit", "parties": 3, "submissions": 1, "states": [[1, 10**15]]},
    "negative": {"phase": "submit", "states": [[0, -(10**15)], [1, 10**15]]},
    "shapeless": {"phase": "submit", "states": "abc", "events": {"length": 1}},
    "markup": {"phase": "<img src=x onerror='document.title=1'>", "statistic": "<b>mean</b>"},
}


def test_a_folder_that_somebody_else_wrote(served: Served, window: Open) -> None:
    """It stops no browser, runs nothing in it, and spoils no other run."""
    for name, progress in HOSTILE.items():
        (served.folder / name).mkdir(parents=True)
        (served.folder / name / "progress.json").write_text(json.dumps(progress))
    one = window()
    one.page.wait_for_function("() => document.querySelectorAll('nav li').length === 4")
    expected = {
        "endless": "1,000,000,000,000,000 parties, too many to draw",
        "negative": "they cannot be shown",
        "shapeless": "they cannot be shown",
        "markup": "<img src=x onerror='document.title=1'>: ",
    }
    for name, words in expected.items():
        one.page.locator(f'nav button[data-key="{name}"]').click()
        one.expect("main", words, 10)
    assert one.page.title() == "Tallyroom"
    assert one.page.locator("main img, nav b").count() == 0


def test_the_pages_death_touches_no_run(served: Served, window: Open) -> None:
    one = window()
    start(one, "ecdf", parties="12", runtime="processes", seed="1")
    one.page.wait_for_function("() => location.hash.length > 1")
    port = served.port
    served.kill()
    one.expect("#connection", "away")
    one.said.clear()  # the browser's own complaint that nobody answers
    answer, until = only_run(served) / "report.html", time.monotonic() + 60
    while not answer.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert answer.exists()
    served.start(port)
    one.expect("main h2 .state", "done")
    one.said.clear()


def children(parent: int) -> list[int]:
    """Of a process, the eldest first."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append((int(fields[19]), int(each.name)))
    return [pid for _, pid in sorted(found)]


def coordinator_of(served: Served, servers: int) -> int:
    """Of the run that the page started: the fork server starts it after the servers."""
    assert served.process is not None
    (run,) = children(served.process.pid)
    _, fork_server = children(run)
    return children(fork_server)[servers]


LIVE = """() => {
  const texts = (row) => [...row.children].map((each) => each.textContent);
  const cells = [...document.querySelectorAll("main tr")].map(texts);
  const row = cells.find(([name]) => name === "party → server");
  const running = document.querySelector("main h2 .state")?.textContent === "running";
  return running && row && Number(row[3]) >= 6 ? row : null;
}"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_links_are_live_between_processes_and_a_dead_coordinator_is_told(
    served: Served, window: Open
) -> None:
    """Of four parties one never answers, so that the run waits: what the links have carried by then
    is on the page. Then its coordinator is killed."""
    one = window()
    options = {"parties": "4", "dropout": "0.25", "deadline": "120", "cap": "5", "epsilon": "2"}
    start(one, "mean", runtime="processes", **options)
    row = one.page.wait_for_function(LIVE, timeout=60_000).json_value()
    progress = json.loads((only_run(served) / "progress.json").read_text())
    assert row[0] == "party → server"
    # Three of four have spoken, to both servers.
    predicted = progress["predicted"]["party->server"]
    assert row[1:] == [f"{predicted * 3 // 4:,}", f"{predicted:,}", "6"]
    assert progress["links"]["coordinator->party"]["messages"] == 4
    one.expect("main", "3 submitted")
    one.expect("main", "Parties are waited for at most")
    one.expect("main", "server-1")
    one.expect("main", "will be charged at the release")
    ledgers = one.page.get_by_role("region", name="Each server keeps its own").inner_text()
    assert ledgers.count("ε 5") == ledgers.count("ε 2, δ 0") == 2
    links = one.page.get_by_role("heading", name="Parties, servers and their links")
    links.evaluate("each => each.scrollIntoView()")  # past the command, which names a folder
    one.picture("serve-live-desktop-light")
    os.kill(coordinator_of(served, servers=2), signal.SIGKILL)
    one.expect("main h2 .state", "failed")
    one.expect("main .loud", "Why it failed: ")
    one.expect("main .loud", "coordinator")
    start(one, "mean", parties="5")  # and the page goes on
    one.expect("main h2 .state", "done")


def test_it_is_used_with_the_keyboard_alone(served: Served, window: Open) -> None:
    one = window()
    press = one.page.keyboard.press
    one.expect("#connection", "live")
    for _ in range(2):  # past the link that skips the list
        press("Tab")
    press("Enter")
    one.page.get_by_role("button", name="Start").wait_for()
    one.page.get_by_label("epsilon", exact=True).focus()
    one.page.keyboard.type("3")
    press("Enter")
    one.expect("main h2 .state", "done")
    one.expect("main", "ε = 3")
