import numpy as np
from numpy.typing import NDArray

def count_bytes(data: NDArray[np.unsignedinteger]) -> bytes: ...
