"""Tables for papers: LaTeX that needs no package."""

from collections.abc import Sequence

MARKED = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "ρ": r"$\rho$",
    "∞": r"$\infty$",
}
"""What stands for itself in plain text alone."""


def latex(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `tabular`, its first column to the left and others to the right."""
    columns = "l" + "r" * (len(heads) - 1)
    lines = [_line(heads), r"\hline", *map(_line, rows)]
    body = "\n".join([r"\hline", *lines, r"\hline"])
    return f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"


def escaped(text: str) -> str:
    """On one line, as it reads."""
    return "".join(MARKED.get(each, each) for each in " ".join(text.split()))
