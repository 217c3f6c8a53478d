"""The loops of `dawa_loops.py`. Each fills its last argument."""

import numpy as np
from numpy.typing import NDArray

def deviations(cells: NDArray[np.int64], levels: int, table: NDArray[np.int64], /) -> None: ...
def cheapest(costs: NDArray[np.int64], levels: int, lengths: NDArray[np.int64], /) -> None: ...
