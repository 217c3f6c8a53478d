"""An estimate, a number or a curve, as an array."""

import numpy as np
from numpy.typing import NDArray


def as_array(estimate: object) -> NDArray[np.float64]:
    return np.atleast_1d(np.asarray(getattr(estimate, "y", estimate), dtype=np.float64))
