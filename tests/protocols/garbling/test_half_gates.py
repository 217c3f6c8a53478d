"""Garbled evaluation against the clear one, native against twin, and what goes wrong on purpose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling import half_gates as garbling
from tallyroom.protocols.garbling import native
from tallyroom.protocols.garbling.circuit import AND, NOT, XOR, Circuit
from tests.protocols.garbling.circuits import clear, greater, random_circuit, single_gate
from tests.protocols.pairwise.dealing import random_bits, random_bytes, random_deltas


def labelled(labels: Bytes, bits: Bytes, deltas: Bytes) -> Bytes:
    """The labels of bits, from those of 0."""
    chosen: Bytes = np.bitwise_xor(labels, bits[..., None] * deltas[:, None, None, :])
    return chosen


def run(circuit: Circuit, bits: Bytes, seed: int) -> tuple[garbling.Garbled, Bytes, Bytes]:
    """Garbles and evaluates on (K, I, inputs) bits: also the active output labels, and the Δs."""
    links, instances, inputs = bits.shape
    keys, deltas = random_bytes(seed, links, 16), random_deltas(seed + 1, links)
    labels = random_bytes(seed + 2, links, instances, inputs, 16)
    garbled = garbling.garble(circuit, keys, deltas, labels)
    active = garbling.evaluate(circuit, keys, labelled(labels, bits, deltas), garbled.tables)
    return garbled, active, deltas


def check(circuit: Circuit, bits: Bytes, seed: int) -> None:
    garbled, active, deltas = run(circuit, bits, seed)
    expected = clear(
        circuit, bits[..., : circuit.garbler_inputs], bits[..., circuit.garbler_inputs :]
    )
    assert np.array_equal(active, labelled(garbled.outputs, expected, deltas))
    assert garbled.tables.nbytes == 32 * circuit.ands * bits.shape[0] * bits.shape[1]
    # The colour, and what the garbler knows of it, are XOR shares of the bit.
    assert np.array_equal((active[..., 0] ^ garbled.outputs[..., 0]) & 1, expected)


@pytest.mark.parametrize("kind", [XOR, AND, NOT])
def test_every_gate_on_every_input_and_every_colour(kind: int) -> None:
    """All four inputs as instances, on 64 links: every combination of label colours among them."""
    bits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.uint8)
    check(single_gate(kind), np.broadcast_to(bits, (64, 4, 2)), 10 * kind)


@given(
    st.integers(0, 2**32),
    st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(0, 60), st.integers(0, 9)),
    st.integers(1, 3),
    st.integers(1, 11),
)
def test_random_circuits_compute_what_they_do_in_the_clear(
    seed: int, sizes: tuple[int, int, int, int], links: int, instances: int
) -> None:
    circuit = random_circuit(seed, *sizes)
    check(circuit, random_bits(seed, links, instances, sizes[0] + sizes[1]), seed)


def test_a_comparison_of_every_pair_of_4_bits() -> None:
    values = np.arange(256)
    bits = ((values[:, None] >> np.arange(8)) & 1).astype(np.uint8)[None]
    check(greater(4), bits, 3)
    expected = clear(greater(4), bits[..., :4], bits[..., 4:])[0, :, 0]
    assert np.array_equal(expected, values % 16 > values // 16)


@pytest.mark.skipif(native.compiled is None, reason="no native module here")
@pytest.mark.parametrize(
    ("links", "instances"), [(1, 1), (1, 2), (3, 3), (2, 4), (1, 5), (2, 8), (1, 9), (5, 17)]
)
def test_every_implementation_gives_the_same_bytes(
    links: int, instances: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuits = [random_circuit(seed, 4, 3, 40, 5) for seed in range(4)]
    circuits += [greater(8), random_circuit(9, 2, 2, 0, 3), random_circuit(9, 2, 2, 9, 0)]
    for number, circuit in enumerate(circuits):
        inputs = circuit.garbler_inputs + circuit.evaluator_inputs
        bits = random_bits(number, links, instances, inputs)
        found = []
        for code in (None, *range(1, native.compiled.best() + 1)):
            monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
            garbled, active, _ = run(circuit, bits, number)
            found.append((garbled.tables, garbled.outputs, active))
        assert len(found) > 1
        for other in found[1:]:
            for ours, theirs in zip(found[0], other, strict=True):
                assert np.array_equal(ours, theirs)


@pytest.mark.skipif(native.compiled is None, reason="no native module here")
def test_arbitrary_tables_are_evaluated_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile garbler's bytes move no read: whatever they are, there is one answer."""
    circuit = random_circuit(5, 3, 3, 50, 6)
    keys, labels = random_bytes(1, 2, 16), random_bytes(2, 2, 7, 6, 16)
    tables = random_bytes(3, 2, 7, circuit.ands, 32)
    found = []
    for code in (None, *range(1, native.compiled.best() + 1)):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        found.append(garbling.evaluate(circuit, keys, labels, tables).tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("links", [1, 4])
def test_links_and_instances_do_not_touch_each_other(links: int) -> None:
    """Link k of many is what it is alone; so is a prefix of the instances."""
    circuit = random_circuit(6, 3, 4, 50, 6)
    keys, deltas = random_bytes(1, links, 16), random_deltas(2, links)
    labels = random_bytes(3, links, 9, 7, 16)
    every = garbling.garble(circuit, keys, deltas, labels)
    for link in range(links):
        part = slice(link, link + 1)
        alone = garbling.garble(circuit, keys[part], deltas[part], labels[part, :5])
        assert np.array_equal(alone.tables, every.tables[part, :5])
        assert np.array_equal(alone.outputs, every.outputs[part, :5])


def test_equal_inputs_have_unequal_tables_in_every_instance_and_gate() -> None:
    """The tweak: the same labels at another gate, half or instance are hashed to something else."""
    gates = np.array([[AND, 0, 1], [AND, 0, 1], [AND, 1, 0]], dtype=np.uint32)
    circuit = Circuit(1, 1, gates, np.array([2, 3, 4], dtype=np.uint32))
    labels = np.broadcast_to(random_bytes(1, 1, 1, 2, 16), (1, 50, 2, 16))
    garbled = garbling.garble(circuit, random_bytes(2, 1, 16), random_deltas(3, 1), labels)
    halves = garbled.tables.reshape(-1, 16)
    assert len({half.tobytes() for half in halves}) == len(halves) == 300
    assert len({label.tobytes() for label in garbled.outputs.reshape(-1, 16)}) == 150


def test_wrong_labels_keys_and_tables_lead_to_no_label_of_the_garblers() -> None:
    circuit = greater(8)
    keys, deltas = random_bytes(1, 1, 16), random_deltas(2, 1)
    labels = random_bytes(3, 1, 1, 16, 16)
    active = labelled(labels, random_bits(4, 1, 1, 16), deltas)
    garbled = garbling.garble(circuit, keys, deltas, labels)
    valid = {garbled.outputs.tobytes(), (garbled.outputs ^ deltas).tobytes()}

    def result(key: Bytes, inputs: Bytes, tables: Bytes) -> bytes:
        return garbling.evaluate(circuit, key, inputs, tables).tobytes()

    right = result(keys, active, garbled.tables)
    assert right in valid
    for wire in range(16):
        wrong = active.copy()
        wrong[0, 0, wire, 5] ^= 4
        assert result(keys, wrong, garbled.tables) not in valid
    assert result(np.bitwise_xor(keys, np.uint8(1)), active, garbled.tables) not in valid
    changed = 0
    for index in range(garbled.tables.size):
        tables = garbled.tables.copy()
        tables.reshape(-1)[index] ^= 1 << (index % 8)
        found = result(keys, active, tables)
        # Half of the rows are not looked at, by colour; a flip there changes nothing.
        assert found == right or found not in valid
        changed += found != right
    assert 0 < changed < garbled.tables.size


def test_what_does_not_fit_is_refused() -> None:
    circuit = greater(2)
    keys, deltas = random_bytes(1, 2, 16), random_deltas(2, 2)
    labels = random_bytes(3, 2, 3, 4, 16)
    tables = garbling.garble(circuit, keys, deltas, labels).tables
    colourless = deltas.copy()
    colourless[1, 0] ^= 1
    for wrong in (
        (keys[:1], deltas, labels),
        (keys, deltas[:1], labels),
        (keys, colourless, labels),
        (keys, deltas, labels[:, :, :3]),
        (keys, deltas, labels[..., :15]),
        (keys, deltas, labels[0]),
        (keys, deltas, labels.astype(np.int16)),
    ):
        with pytest.raises(LocalError):
            garbling.garble(circuit, *wrong)
    for cut in (tables[:1], tables[:, :2], tables[:, :, :1], tables[..., :31]):
        with pytest.raises(LocalError):
            garbling.evaluate(circuit, keys, labels, cut)


@pytest.mark.skipif(native.compiled is None, reason="no native module here")
def test_the_native_module_checks_wires_itself() -> None:
    outputs, labels = np.array([2], dtype=np.uint32), random_bytes(1, 2, 16)
    keys, best = random_bytes(2, 1, 16), native.compiled.best()
    for gate in ([0, 2, 0], [0, 0, 2], [3, 0, 1], [0, 2**32 - 1, 0]):
        gates = np.array([gate], dtype=np.uint32)
        with pytest.raises(ValueError, match="circuit"):
            native.compiled.evaluate(
                best, 2, gates, outputs, 1, keys, labels, labels[:0], random_bytes(3, 16)
            )
    gates = np.array([[0, 0, 1]], dtype=np.uint32)
    with pytest.raises(ValueError, match="circuit"):
        native.compiled.evaluate(
            best, 2, gates, outputs + 1, 1, keys, labels, labels[:0], random_bytes(3, 16)
        )
    with pytest.raises(ValueError, match="fit"):
        native.compiled.evaluate(
            best, 2, gates, outputs, 2, keys, labels, labels[:0], random_bytes(3, 16)
        )


def test_secrets_do_not_show() -> None:
    garbled, _, _ = run(greater(1), random_bits(1, 1, 1, 2), 1)
    assert repr(garbled) == "<Garbled>"
