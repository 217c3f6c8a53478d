from tallyroom.fss.ring import Bytes, Points

def best() -> int: ...
def hash_rounds(instruction_set: int, rounds: int, /) -> int: ...
def expand_seeds(instruction_set: int, seeds: Bytes, words: int, out: Points, /) -> None: ...
def expand_seeds_sum(instruction_set: int, seeds: Bytes, words: int, out: Points, /) -> None: ...
def tree_gen(
    instruction_set: int,
    shape: tuple[int, int, int, int, int],
    keys: bytes,
    alphas: Points,
    randomness: Bytes,
    rows0: Bytes,
    rows1: Bytes,
    /,
) -> None: ...
def tree_sum(
    instruction_set: int,
    shape: tuple[int, int, int, int, int],
    keys: bytes,
    server: int,
    data: Bytes,
    level_major: bool,
    begin: int,
    end: int,
    points: Points,
    out: Points,
    /,
) -> None: ...
def tree_matrix(
    instruction_set: int,
    shape: tuple[int, int, int, int, int],
    keys: bytes,
    server: int,
    data: Bytes,
    level_major: bool,
    begin: int,
    end: int,
    points: Points,
    out: Points,
    /,
) -> None: ...
def square_root_sum(
    instruction_set: int,
    usage: bytes,
    keys: Bytes,
    table_bytes: int,
    rows: int,
    columns: int,
    wanted: Points,
    out: Points,
    /,
) -> None: ...
def verified_gen(
    instruction_set: int,
    bits: int,
    keys: bytes,
    alphas: Points,
    randomness: Bytes,
    rows0: Bytes,
    rows1: Bytes,
    /,
) -> None: ...
def verified_sum(
    instruction_set: int,
    bits: int,
    keys: bytes,
    rows: Bytes,
    blocks: int,
    nodes: Bytes,
    correction_weights: Points,
    weights: Points,
    sums: Points,
    prints: Points,
    /,
) -> None: ...
def grid_gen(
    instruction_set: int,
    bits: int,
    keys: bytes,
    alphas: Points,
    randomness: Bytes,
    rows0: Bytes,
    rows1: Bytes,
    /,
) -> None: ...
def grid_sum(
    instruction_set: int,
    bits: int,
    keys: bytes,
    rows: Bytes,
    correction_weights: Points,
    weights: Points,
    sums: Points,
    prints: Points,
    /,
) -> None: ...
