"""The documentation's site: whole, without a warning, and drawn from what machines sent."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tallyroom.protocols.aggregation import aggregators
from tallyroom.simulation.reports.message_flows import OTHERS, asked, flow, picture, write_flows
from tallyroom.simulation.reports.trust_picture import trust_picture

HERE = Path(__file__).resolve().parent.parent
DOCS = HERE / "docs"


def test_every_page_is_in_the_index() -> None:
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.S)
    listed = {line for block in blocks for line in block.split() if not line.startswith(":")}
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    pages |= {f"notebooks/{path.stem}" for path in (DOCS / "notebooks").glob("*.ipynb")}
    assert pages - listed == set()


@pytest.mark.parametrize("name", ["additive", "masking"])
def test_a_flow_has_every_message_of_the_bill(name: str) -> None:
    result = asked(name)
    steps = flow(result)
    assert sum(step[3] for step in steps) == result.bill.total.bytes
    assert sum(step[4] for step in steps) == result.bill.total.messages
    assert picture(name, steps).count("<path ") == len(steps)
    phases = [step[2] for step in steps]
    assert phases.index("query") < phases.index("submit") < phases.index("release")


def test_there_is_a_page_for_every_aggregator(tmp_path: Path) -> None:
    write_flows(tmp_path / "flows")
    for name in OTHERS:
        assert "<svg " in (tmp_path / "flows" / f"{name}.md").read_text()
    pairs = (tmp_path / "flows" / "pairs.md").read_text()
    assert "| pair | party | party | 3 |" in pairs
    assert "Not drawn" not in "".join(each.read_text() for each in tmp_path.rglob("*.md"))
    for name in aggregators():
        text = (tmp_path / "flows" / f"{name}.md").read_text()
        assert "<svg " in text
        assert "| submit | party | server |" in text or name == "shuffle", name


def test_whom_an_aggregator_trusts_is_drawn_as_it_states_it() -> None:
    """The dashed line is around as many servers as may collude, and thick ones see data."""
    for name, aggregator in aggregators().items():
        servers = aggregator.servers
        model = aggregator.threat_model(servers)
        drawn = ElementTree.fromstring(trust_picture(name, model, servers))
        boxes = [(float(each.get("y", "")), each) for each in drawn.iter("rect")]
        lines = [(y, each) for y, each in boxes if each.get("class") == "collude"]
        own = [each for each in boxes if each[1].get("x") == "260"]
        assert len(own) == servers
        thick = [each for _, each in own if each.get("stroke-width") == "4"]
        assert len(thick) == (servers if name == "curator" else 0), name
        inside = [
            y
            for top, line in lines
            for y, each in own
            if top < y and y + float(each.get("height", "")) <= top + float(line.get("height", ""))
        ]
        assert len(inside) == (model.colluding if servers > 1 else 0), name


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if missing := [each for each in ("sphinx", "furo", "myst_nb") if find_spec(each) is None]:
        pytest.skip(f"the extra `docs` is not installed: {', '.join(missing)}")
    # tests/test_notebooks.py runs the notebooks.
    words = ["-m", "sphinx", "-q", "-W", "-D", "nb_execution_mode=off", "-b", "html"]
    words += [str(DOCS), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *words], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "api.html").read_text().count("Federation") > 3
