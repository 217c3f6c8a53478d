"""The package that users import: everything it names is there, and nothing is loaded before."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tallyroom
from tallyroom.protocols import registry
from tallyroom.protocols.statistics import statistics


def test_every_name_is_there_and_is_what_its_home_calls_so() -> None:
    assert dir(tallyroom) == sorted(tallyroom.__all__) == sorted(tallyroom._HOME_OF)
    for name in tallyroom.__all__:
        found = getattr(tallyroom, name)
        assert found.__name__ == name
        assert getattr(sys.modules[tallyroom._HOME_OF[name]], name) is found


def test_every_statistic_is_a_name() -> None:
    """But those that are asked under another's name: nobody writes them."""
    offered = [kind for kind in statistics().values() if not kind.part_of]
    assert len(offered) > 15
    missing = [kind for kind in offered if not hasattr(tallyroom, kind.__name__)]
    assert missing == []


def test_every_study_is_a_name() -> None:
    kinds = registry.loadable(registry.STUDIES).values()
    assert len(kinds) > 5
    assert [kind for kind in kinds if not hasattr(tallyroom, kind.__name__)] == []


def test_a_type_checker_knows_every_name() -> None:
    """It reads the imports that are made for it alone."""
    source = Path(tallyroom.__file__).read_text()
    seen = source.partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    assert [name for name in tallyroom.__all__ if not re.search(rf"\b{name}\b", seen)] == []


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Edcf'"):
        _ = tallyroom.Edcf  # type: ignore[attr-defined]  # the point


def test_importing_it_loads_nothing() -> None:
    program = (
        "import sys; import tallyroom;"
        "print([m for m in sys.modules if m in ('numpy', 'grpc') or m.startswith('tallyroom.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_it_answers() -> None:
    values = np.linspace(0, 1, 101)
    with tallyroom.Federation(parties=4, data=values) as federation:
        result = federation.run(tallyroom.Mean(lower=0, upper=1), epsilon="inf")
    assert result.estimate == pytest.approx(values.mean(), abs=1e-6)
