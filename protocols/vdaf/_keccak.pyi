"""The loops of `xof.py`: rows of equal length in contiguous buffers."""

import numpy as np
from numpy.typing import NDArray

def squeeze(
    messages: NDArray[np.uint8], rows: int, domain: int, out: NDArray[np.uint8], /
) -> None: ...
def squeeze_field(
    limbs: int, messages: NDArray[np.uint8], rows: int, domain: int, out: NDArray[np.uint64], /
) -> None: ...
