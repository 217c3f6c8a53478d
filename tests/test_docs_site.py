"""The documentation's site: whole, without a warning, and drawn from what machines sent."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from protocols.aggregation import aggregators
from simulation.reports.message_flows import asked, flow, picture, write_flows

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
    for name in aggregators():
        text = (tmp_path / "flows" / f"{name}.md").read_text()
        assert "<svg " in text
        assert "| submit | party | server |" in text or name == "shuffle", name


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
