"""Native elimination on the smoothing network; see `smoothing/network.py`."""

import numpy as np
from numpy.typing import NDArray

def factor(
    plan: NDArray[np.int32],
    edges: NDArray[np.float64],
    gaps: NDArray[np.float64],
    factor: NDArray[np.float64],
    /,
) -> None: ...
def solve(
    plan: NDArray[np.int32], factor: NDArray[np.float64], potentials: NDArray[np.float64], /
) -> None: ...
