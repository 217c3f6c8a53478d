"""Tables as LaTeX: what is written is what reads there."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tallyroom.simulation.reports.latex import MARKED, escaped, latex

printable = st.text(st.one_of(st.sampled_from(list(MARKED)), st.characters(categories=["L", "N"])))


def read(source: str) -> str:
    """What the source stands for, one command or character after another."""
    meanings = {source: sign for sign, source in MARKED.items()}
    tokens = re.findall(r"\\text[a-z]+\{\}|\$(?:\\[a-z]+|-)\$|\\[^a-z]|[^\\$]", source)
    assert "".join(tokens) == source
    assert not any(token in "&%$#_{}~^\\" for token in tokens)  # nothing that LaTeX acts on
    return "".join(meanings.get(token, token) for token in tokens)


@given(printable)
def test_every_text_reads_as_it_was(text: str) -> None:
    assert read(escaped(text)) == text


@given(st.lists(st.lists(printable, min_size=3, max_size=3), max_size=5))
def test_a_table_has_its_cells(rows: list[list[str]]) -> None:
    heads = ["aggregator", "rmse", "95 % of ε"]
    lines = latex(heads, rows).splitlines()
    assert [lines[0], lines[-1]] == [r"\begin{tabular}{lrr}", r"\end{tabular}"]
    assert [lines[1], lines[3], lines[-2]] == [r"\hline"] * 3
    found = [line for line in lines[2:-2] if line != r"\hline"]
    assert all(line.endswith(r" \\") for line in found)
    cells = [[read(cell) for cell in line.removesuffix(r" \\").split(" & ")] for line in found]
    assert cells == [heads, *rows]


def test_a_line_break_in_a_name_breaks_no_line() -> None:
    assert escaped("a\nb\tc  d") == "a b c d"
