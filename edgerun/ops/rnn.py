"""Recurrent layers: lstm (in floats or quantised), gru and rnn over a whole sequence, one or two directions.

Time comes first: x is [T, B, I]; the importer transposes batch-first models. With D directions and H hidden units, w is
[D, G*H, I], r [D, G*H, H] and bias [D, 2*G*H] (input biases, then recurrent biases), where G counts the gates: 4 for
lstm in the order i, o, f, c; 3 for gru in the order z, r, h; 1 for rnn. `lengths` [B] says how many steps of each
sequence are valid: a forward direction stops there, a reverse direction starts there, and later outputs are zero.

`activations` names the functions of each direction in turn (lstm f, g, h; gru f, g; rnn f); `alpha` and `beta` hold one
parameter per activation, 0 where a function has none. `clip` bounds the inputs of the gates' activations to
[-clip, clip]; 0 turns that off. The equations are those of the ONNX operators of the same names.
"""

from __future__ import annotations

from edgerun.dims import DimLike, product
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, macs, op, require

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
ACTIVATIONS = frozenset(
    {
        "relu", "tanh", "sigmoid", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu",
        "softsign", "softplus",
    }
)  # fmt: skip
_GATES = {"lstm": 4, "lstm_quantised": 4, "gru": 3, "rnn": 1}
_FUNCTIONS = {"lstm": 3, "lstm_quantised": 3, "gru": 2, "rnn": 1}


@op("rnn")
def lstm(
    x: TensorType,
    w: TensorType,
    r: TensorType,
    bias: TensorType | None = None,
    lengths: TensorType | None = None,
    h0: TensorType | None = None,
    c0: TensorType | None = None,
    p: TensorType | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh"),
    alpha: tuple[float, ...] = (0.0, 0.0, 0.0),
    beta: tuple[float, ...] = (0.0, 0.0, 0.0),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[TensorType, TensorType, TensorType]:
    """Long short-term memory with optional peepholes p [D, 3*H] (i, o, f): y [T, D, B, H], y_h and y_c [D, B, H]."""
    y, state = _check("lstm", x, w, r, bias, lengths, hidden, direction, activations, alpha, beta)
    directions = DIRECTIONS[direction]
    _check_shape("h0", h0, state)
    _check_shape("c0", c0, state)
    _check_shape("p", p, None if x.shape is None else (directions, 3 * hidden))
    return TensorType(x.dtype, y), TensorType(x.dtype, state), TensorType(x.dtype, state)


@op("rnn")
def lstm_quantised(
    x: TensorType,
    w: TensorType,
    r: TensorType,
    w_scale: TensorType,
    w_zero: TensorType,
    r_scale: TensorType,
    r_zero: TensorType,
    bias: TensorType | None = None,
    lengths: TensorType | None = None,
    h0: TensorType | None = None,
    c0: TensorType | None = None,
    p: TensorType | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh"),
    alpha: tuple[float, ...] = (0.0, 0.0, 0.0),
    beta: tuple[float, ...] = (0.0, 0.0, 0.0),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[TensorType, TensorType, TensorType]:
    """lstm with 8-bit weights: the whole of x, and the state h at every step, are quantised dynamically to u8.

    Scales and zero points are [D] or [D, 4*H]; products accumulate in integers. Everything else is as in lstm.
    """
    require(x.dtype is DType.F32, f"a quantised lstm takes f32, not {x.dtype.short}")
    for name, weights, scale, zero in (("w", w, w_scale, w_zero), ("r", r, r_scale, r_zero)):
        require(weights.dtype in (DType.I8, DType.U8), f"{name} is {weights.dtype.short}, expected 8-bit integers")
        require(zero.dtype is weights.dtype and scale.dtype is DType.F32, f"the parameters of {name} do not fit it")
        if scale.shape is not None and len(scale.shape) != 1:
            _check_shape(f"the scale of {name}", scale, (DIRECTIONS.get(direction, 1), 4 * hidden))
    y, state = _check(
        "lstm_quantised", x, w, r, bias, lengths, hidden, direction, activations, alpha, beta, same_type=False
    )
    _check_shape("h0", h0, state)
    _check_shape("c0", c0, state)
    _check_shape("p", p, None if x.shape is None else (DIRECTIONS[direction], 3 * hidden))
    return TensorType(x.dtype, y), TensorType(x.dtype, state), TensorType(x.dtype, state)


@op("rnn")
def gru(
    x: TensorType,
    w: TensorType,
    r: TensorType,
    bias: TensorType | None = None,
    lengths: TensorType | None = None,
    h0: TensorType | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("sigmoid", "tanh"),
    alpha: tuple[float, ...] = (0.0, 0.0),
    beta: tuple[float, ...] = (0.0, 0.0),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[TensorType, TensorType]:
    """Gated recurrent unit: y [T, D, B, H], y_h [D, B, H].

    `linear_before_reset` applies the reset gate to the recurrent product (and its bias) instead of to the state.
    """
    y, state = _check("gru", x, w, r, bias, lengths, hidden, direction, activations, alpha, beta)
    _check_shape("h0", h0, state)
    return TensorType(x.dtype, y), TensorType(x.dtype, state)


@op("rnn")
def rnn(
    x: TensorType,
    w: TensorType,
    r: TensorType,
    bias: TensorType | None = None,
    lengths: TensorType | None = None,
    h0: TensorType | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("tanh",),
    alpha: tuple[float, ...] = (0.0,),
    beta: tuple[float, ...] = (0.0,),
    clip: float = 0.0,
) -> tuple[TensorType, TensorType]:
    """Elman network h = f(x W^T + h R^T + bias): y [T, D, B, H], y_h [D, B, H]."""
    y, state = _check("rnn", x, w, r, bias, lengths, hidden, direction, activations, alpha, beta)
    _check_shape("h0", h0, state)
    return TensorType(x.dtype, y), TensorType(x.dtype, state)


def _check(
    kind: str,
    x: TensorType,
    w: TensorType,
    r: TensorType,
    bias: TensorType | None,
    lengths: TensorType | None,
    hidden: int,
    direction: str,
    activations: tuple[str, ...],
    alpha: tuple[float, ...],
    beta: tuple[float, ...],
    *,
    same_type: bool = True,
) -> tuple[tuple[DimLike, ...] | None, tuple[DimLike, ...] | None]:
    """Verify what the ops share; returns the shapes of y and of one final state."""
    require(direction in DIRECTIONS, f"there is no direction {direction!r}")
    require(x.dtype.is_float, f"a recurrent layer takes floats, not {x.dtype.short}")
    require(not same_type or (w.dtype is x.dtype and r.dtype is x.dtype), "input and weights differ in type")
    directions, rows = DIRECTIONS[direction], _GATES[kind] * hidden
    count = _FUNCTIONS[kind] * directions
    require(len(activations) == count, f"{kind} ({direction}) takes {count} activations, not {len(activations)}")
    require(len(alpha) == count and len(beta) == count, "alpha and beta take one value per activation")
    unknown = sorted(set(activations) - ACTIVATIONS)
    require(not unknown, f"there is no recurrent activation {unknown[:1]}")
    if lengths is not None:
        require(lengths.dtype in (DType.I32, DType.I64), f"lengths are integers, not {lengths.dtype.short}")
    if x.shape is None:
        return None, None
    require(len(x.shape) == 3, f"the input of {kind} has rank 3, not {len(x.shape)}")
    steps, batch, width = x.shape
    _check_shape("w", w, (directions, rows, width))
    _check_shape("r", r, (directions, rows, hidden))
    _check_shape("bias", bias, (directions, 2 * rows))
    _check_shape("lengths", lengths, (batch,))
    return (steps, directions, batch, hidden), (directions, batch, hidden)


def _check_shape(name: str, given: TensorType | None, expected: tuple[DimLike, ...] | None) -> None:
    if given is None or given.shape is None or expected is None:
        return
    fits = len(given.shape) == len(expected) and all(
        not (isinstance(a, int) and isinstance(b, int)) or a == b for a, b in zip(given.shape, expected, strict=True)
    )
    require(fits, f"{name} has the shape {given.shape}, expected {expected}")


def _count(x: TensorType, w: TensorType, r: TensorType) -> DimLike:
    if x.shape is None or w.shape is None or r.shape is None:
        return 0
    return product(x.shape[:2]) * (product(w.shape) + product(r.shape))


@macs("lstm")
def _lstm_macs(x: TensorType, w: TensorType, r: TensorType, *rest: object, **attrs: object) -> DimLike:
    return _count(x, w, r)


@macs("lstm_quantised")
def _lstm_quantised_macs(x: TensorType, w: TensorType, r: TensorType, *rest: object, **attrs: object) -> DimLike:
    return _count(x, w, r)


@macs("gru")
def _gru_macs(x: TensorType, w: TensorType, r: TensorType, *rest: object, **attrs: object) -> DimLike:
    return _count(x, w, r)


@macs("rnn")
def _rnn_macs(x: TensorType, w: TensorType, r: TensorType, *rest: object, **attrs: object) -> DimLike:
    return _count(x, w, r)
