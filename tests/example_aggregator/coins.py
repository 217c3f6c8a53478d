"""A figure: the mean of n coins is nearer to ½ the more there are."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from tallyroom.extend import Figure, Outcome, Scale, write_table


def run(folder: Path, scale: Scale) -> Outcome:
    runs = 400 if scale is Scale.PAPER else 40
    rng = np.random.default_rng(7)
    errors = {
        n: float(np.mean(np.abs(rng.binomial(n, 0.5, runs) / n - 0.5))) for n in (10, 100, 1000)
    }
    rows = [{"n": n, "error": error} for n, error in errors.items()]
    canvas = Canvas()
    canvas.add_subplot().loglog(list(errors), list(errors.values()), marker="o")
    canvas.savefig(folder / "coins.png")
    return Outcome(
        {"the mean error falls tenfold from 10 to 1000 coins": errors[1000] <= errors[10] / 10 * 2},
        {"runs": runs},
        [write_table(folder / "coins.csv", rows), folder / "coins.png"],
    )


FIGURE = Figure("coins", "The mean of more coins is nearer to one half.", run)
