"""The benchmark of verified keys, in small: it runs, and says what it compares with."""

import pytest

from tallyroom.fss import native
from tallyroom.simulation.bench import verified


@pytest.mark.skipif(native.instruction_set() is None, reason="no native module here")
def test_rows_have_the_ratio_to_unverified_keys() -> None:
    gen = verified.gen_row(limit=1e9, repeats=1)
    assert gen.name == "verified-gen-32-native"
    assert gen.details["key_bytes"] <= 48 * 32
    curve = verified.curve_row(parties=300, thresholds=16, repeats=1)
    assert curve.name == "verified-curve-300x16"
    for row in (gen, curve):
        assert row.ratios["unverified"] > 0
