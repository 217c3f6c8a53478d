"""What came before is found, whatever stands around it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.aggregation.verifying_server import NAME_BYTES, repeated

HALVES = st.sampled_from([bytes(8), b"\1" * 8, b"\xff" * 8])


@given(st.lists(st.builds(bytes.__add__, HALVES, HALVES), max_size=12))
def test_a_name_that_came_before_is_found(names: list[bytes]) -> None:
    """Names that agree in one half too: a party may choose its own to hide a repeated one."""
    rows = np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, NAME_BYTES)
    expected = [name in names[:place] for place, name in enumerate(names)]
    assert repeated(rows).tolist() == expected
