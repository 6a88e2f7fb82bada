"""LSTM, GRU and RNN against onnxruntime and against hand-written recurrences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase, assert_same

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def arrays(kind, steps=5, batch=3, width=4, hidden=6, directions=1, seed=0, states=False, lengths=None, peephole=False):
    r = np.random.default_rng(seed)
    rows = GATES[kind] * hidden

    def normal(*shape):
        return r.standard_normal(shape).astype(np.float32)

    inputs = {
        "X": normal(steps, batch, width),
        "W": normal(directions, rows, width) / 2,
        "R": normal(directions, rows, hidden) / 2,
        "B": normal(directions, 2 * rows) / 2,
        "L": None if lengths is None else np.array(lengths, np.int32),
        "H": normal(directions, batch, hidden) if states else None,
    }
    if kind == "LSTM":
        inputs["C"] = normal(directions, batch, hidden) if states else None
        inputs["P"] = normal(directions, 3 * hidden) if peephole else None
    return inputs


def case(kind, inputs, **attributes):
    hidden = inputs["R"].shape[2]
    return NodeCase(kind, inputs, {"hidden_size": hidden, **attributes}, outputs=3 if kind == "LSTM" else 2, opset=14)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True], ids=["zero", "initial"])
@pytest.mark.parametrize("kind", GATES)
def test_directions_and_states(kind, direction, states):
    inputs = arrays(kind, directions=2 if direction == "bidirectional" else 1, states=states)
    case(kind, inputs, direction=direction).check()


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_sequence_lengths(kind, direction):
    inputs = arrays(kind, directions=2 if direction == "bidirectional" else 1, states=True, lengths=[5, 2, 3])
    case(kind, inputs, direction=direction).check()


def test_reverse_direction_starts_at_the_end_of_each_sequence():
    inputs = arrays("GRU", steps=4, batch=2, lengths=[2, 4])
    inputs["B"] = None
    y, final = case("GRU", inputs, direction="reverse").edgerun()
    x, (w,), (r,) = inputs["X"].astype(float), inputs["W"].astype(float), inputs["R"].astype(float)
    wz, wr, wn = np.split(w, 3)
    rz, rr, rn = np.split(r, 3)
    expected = np.zeros(y.shape)
    for b, length in enumerate([2, 4]):
        h = np.zeros(6)
        for t in reversed(range(length)):
            z = 1 / (1 + np.exp(-(wz @ x[t, b] + rz @ h)))
            reset = 1 / (1 + np.exp(-(wr @ x[t, b] + rr @ h)))
            h = (1 - z) * np.tanh(wn @ x[t, b] + rn @ (reset * h)) + z * h
            expected[t, 0, b] = h
        np.testing.assert_allclose(final[0, b], h, atol=1e-5)
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_gru_linear_before_reset():
    case("GRU", arrays("GRU", states=True), linear_before_reset=1).check()
    case("GRU", arrays("GRU", states=True) | {"B": None}, linear_before_reset=1).check()


def test_lstm_peepholes_and_input_forget():
    case("LSTM", arrays("LSTM", peephole=True, states=True)).check()
    case("LSTM", arrays("LSTM"), input_forget=1).check()


@pytest.mark.parametrize(
    ("names", "alpha", "beta"),
    [
        (["Sigmoid", "Relu", "Tanh"], [], []),
        (["HardSigmoid", "ScaledTanh", "Affine"], [0.3, 1.5, 0.9], [0.4, 0.7, 0.1]),
        (["Sigmoid", "LeakyRelu", "Elu"], [0.2, 0.5], []),
        (["Softsign", "Softplus", "ThresholdedRelu"], [0.1], []),
        (["sigmoid", "tanh", "tanh"], [], []),
    ],
)
def test_lstm_activations(names, alpha, beta):
    attributes = {"activations": names}
    if alpha:
        attributes["activation_alpha"] = alpha
    if beta:
        attributes["activation_beta"] = beta
    case("LSTM", arrays("LSTM"), **attributes).check()


@pytest.mark.parametrize("kind", GATES)
def test_clip_bounds_gate_inputs(kind):
    inputs = arrays(kind)
    inputs["X"] = inputs["X"] * 4
    case(kind, inputs, clip=0.75).check()


@pytest.mark.parametrize("kind", GATES)
def test_batch_first_layout_is_the_transposed_time_first_layer(kind):
    inputs = arrays(kind, directions=2, states=True)
    expected = case(kind, inputs, direction="bidirectional").edgerun()
    swapped = {k: v.swapaxes(0, 1) if k in "XHC" and v is not None else v for k, v in inputs.items()}
    y, *states = case(kind, swapped, direction="bidirectional", layout=1).edgerun()
    assert_same([y.transpose(1, 2, 0, 3), *(s.swapaxes(0, 1) for s in states)], expected)


def test_only_wanted_outputs():
    node = case("LSTM", arrays("LSTM"))
    node.wanted = [False, True, False]
    full = case("LSTM", arrays("LSTM")).edgerun()
    assert_same(node.edgerun(), [full[1]])


def test_half_precision_is_computed_in_single():
    inputs = arrays("LSTM")
    single = case("LSTM", inputs).edgerun()
    half = case("LSTM", {k: v if v is None else v.astype(np.float16) for k, v in inputs.items()}).edgerun()
    assert all(h.dtype == np.float16 for h in half)
    for h, s in zip(half, single, strict=True):
        np.testing.assert_allclose(h, s, atol=5e-3)


def test_symbolic_sizes_are_kept():
    inputs = arrays("LSTM")
    node = case("LSTM", inputs)
    node.symbolic, node.constant = True, ("W", "R", "B")
    graph = node.graph()
    assert [str(d) for d in graph.tensors[graph.outputs[0]].shape] == ["X_0", "1", "X_1", "6"]
    assert_same(node.edgerun(), case("LSTM", inputs).edgerun())


def test_wrong_weights_are_refused():
    inputs = arrays("LSTM")
    inputs["R"] = inputs["R"][:, :-1]
    with pytest.raises(EdgerunError, match=r"r has the shape"):
        case("LSTM", inputs, direction="forward").graph()


def test_too_many_activation_parameters_are_refused():
    with pytest.raises(EdgerunError, match="activation parameters"):
        case("RNN", arrays("RNN"), activation_alpha=[0.1, 0.2]).graph()


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_lstm_with_quantised_weights(direction, per_channel):
    directions = 2 if direction == "bidirectional" else 1
    inputs = arrays("LSTM", batch=1, directions=directions)
    r = np.random.default_rng(5)
    shape = (directions, 24) if per_channel else (directions,)
    packed = {
        "X": inputs["X"],
        "W": r.integers(-127, 128, (directions, 4, 24)).astype(np.int8),
        "R": r.integers(-127, 128, (directions, 6, 24)).astype(np.int8),
        "B": inputs["B"], "L": None, "H": None, "C": None, "P": None,
        "ws": r.uniform(0.005, 0.01, shape).astype(np.float32), "wz": np.zeros(shape, np.int8),
        "rs": r.uniform(0.005, 0.01, shape).astype(np.float32), "rz": np.zeros(shape, np.int8),
    }  # fmt: skip
    node = NodeCase(
        "DynamicQuantizeLSTM", packed, {"hidden_size": 6, "direction": direction}, outputs=3, opset=1,
        domain="com.microsoft", constant=("W", "R", "ws", "wz", "rs", "rz"),
    )  # fmt: skip
    node.check(rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(GATES)), st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
def test_a_sequence_may_be_run_in_two_parts(kind, first, second, seed):
    inputs = arrays(kind, steps=first + second, seed=seed, states=True)
    y, *final = case(kind, inputs).edgerun()
    begin, *states = case(kind, inputs | {"X": inputs["X"][:first]}).edgerun()
    resumed = inputs | {"X": inputs["X"][first:], "H": states[0]} | ({"C": states[1]} if kind == "LSTM" else {})
    end, *last = case(kind, resumed).edgerun()
    np.testing.assert_allclose(np.concatenate([begin, end]), y, atol=1e-5)
    for a, b in zip(last, final, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(GATES)), st.lists(st.integers(0, 5), min_size=3, max_size=3), st.integers(0, 10**6))
def test_lengths_equal_shorter_sequences(kind, lengths, seed):
    inputs = arrays(kind, seed=seed, states=True, lengths=lengths)
    y, h, *_ = case(kind, inputs).edgerun()
    for b, length in enumerate(lengths):
        assert not y[length:, :, b].any()
        if length == 0:
            np.testing.assert_array_equal(h[:, b], inputs["H"][:, b])
            continue
        alone = {k: v if v is None or k in "WRBP" else v[..., b : b + 1, :] for k, v in inputs.items() if k != "L"}
        alone["X"] = alone["X"][:length]
        alone = {k: alone.get(k) for k in inputs}
        z, *_ = case(kind, alone).edgerun()
        np.testing.assert_allclose(y[:length, :, b : b + 1], z, atol=1e-5)
