import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.ring import Bytes

def best() -> int: ...
def garble(
    instruction_set: int,
    inputs: int,
    gates: NDArray[np.uint32],
    outputs: NDArray[np.uint32],
    instances: int,
    keys: Bytes,
    deltas: Bytes,
    labels: Bytes,
    tables: Bytes,
    out: Bytes,
    /,
) -> None: ...
def evaluate(
    instruction_set: int,
    inputs: int,
    gates: NDArray[np.uint32],
    outputs: NDArray[np.uint32],
    instances: int,
    keys: Bytes,
    labels: Bytes,
    tables: Bytes,
    out: Bytes,
    /,
) -> None: ...
def hash_blocks(
    instruction_set: int, keys: Bytes, domain: int, blocks: Bytes, out: Bytes, /
) -> None: ...
def keystream(instruction_set: int, seeds: Bytes, start: int, out: Bytes, /) -> None: ...
def field_hash(
    instruction_set: int, points: Bytes, columns: Bytes, blocks: int, out: Bytes, /
) -> None: ...
def transpose(columns: Bytes, width: int, rows: Bytes, /) -> None: ...
