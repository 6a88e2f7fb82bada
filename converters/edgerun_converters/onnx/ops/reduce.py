"""Reductions, running sums, index of the extreme, softmax, global pooling and normalisations made of them."""

from __future__ import annotations

from edgerun.dims import product
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

_KINDS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "logsum", "ReduceLogSumExp": "logsumexp",
    "ReduceSumSquare": "sumsq",
}  # fmt: skip


@lowering(*_KINDS)
def reduce(b: Builder, n: OnnxNode) -> None:
    """Axes come from an attribute, or an input since opset 18 (13 for ReduceSum)."""
    x, kind = n.input(0), _KINDS[n.op_type]
    keepdims, noop = bool(n.attr("keepdims", 1)), bool(n.attr("noop_with_empty_axes", 0))
    from_input = n.opset >= (13 if n.op_type == "ReduceSum" else 18)
    axes = n.attr("axes", None)
    if from_input and n.input(1):
        value = b.static(n.input(1))
        if value is None:
            n.bind(b.one("reduce", [x, n.input(1)], kind=kind, keepdims=keepdims, noop_with_empty_axes=noop))
            return
        axes = value.reshape(-1).tolist()
    if b.type(x).shape is None:
        known = tuple(axes) if axes else None
        n.bind(b.one("reduce", [x], kind=kind, over=known, keepdims=keepdims, noop_with_empty_axes=noop))
        return
    over = tuple(sorted({b.axis(x, int(a)) for a in axes or ()}))
    if not over and not noop:
        over = tuple(range(b.rank(x)))
    n.bind(b.one("reduce", [x], kind=kind, over=over, keepdims=keepdims))


@lowering("ArgMax", "ArgMin")
def argreduce(b: Builder, n: OnnxNode) -> None:
    """The first of equal elements, unless `select_last_index`."""
    x = n.input(0)
    n.bind(
        b.one(
            "argreduce",
            [x],
            kind="max" if n.op_type == "ArgMax" else "min",
            axis=b.axis(x, n.attr("axis", 0)),
            keepdims=bool(n.attr("keepdims", 1)),
            last=bool(n.attr("select_last_index", 0)),
        )
    )


@lowering("CumSum", "CumProd")
def running(b: Builder, n: OnnxNode) -> None:
    """The axis is an input; known in all exports that matter."""
    x, op = n.input(0), "cumsum" if n.op_type == "CumSum" else "cumprod"
    options = {"exclusive": bool(n.attr("exclusive", 0)), "reverse": bool(n.attr("reverse", 0))}
    axis = b.static(n.input(1))
    if axis is not None and b.type(x).shape is not None:
        n.bind(b.one(op, [x], over=b.axis(x, int(axis.reshape(-1)[0])), **options))
    else:
        n.bind(b.one(op, [x, n.input(1)], **options))


@lowering("Softmax", "LogSoftmax", "Hardmax")
def softmax(b: Builder, n: OnnxNode) -> None:
    """Along one axis since opset 13; before, over all axes from `axis` on together."""
    x = n.input(0)
    op = "hardmax" if n.op_type == "Hardmax" else "softmax"
    options = {} if op == "hardmax" else {"log": n.op_type == "LogSoftmax"}
    if n.opset >= 13:
        n.bind(b.one(op, [x], axis=b.axis(x, n.attr("axis", -1)), **options))
        return
    shape = b.shape(x)
    axis = b.axis(x, n.attr("axis", 1)) if n.attr("axis", 1) != len(shape) else len(shape)
    if axis == len(shape) - 1:
        n.bind(b.one(op, [x], axis=axis, **options))
        return
    flat = b.one("reshape", [x], to=(product(shape[:axis]), product(shape[axis:])))
    n.bind(b.one("reshape", [b.one(op, [flat], axis=1, **options)], to=shape))


@lowering("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: Builder, n: OnnxNode) -> None:
    """A reduction over all spatial axes."""
    x = n.input(0)
    over = tuple(range(2, b.rank(x)))
    if n.op_type != "GlobalLpPool":
        kind = "mean" if n.op_type == "GlobalAveragePool" else "max"
        n.bind(b.one("reduce", [x], kind=kind, over=over, keepdims=True))
        return
    n.bind(_norm(b, x, over, n.attr("p", 2)))


def _norm(b: Builder, x: str, over: tuple[int, ...], p: int) -> str:
    """(sum |x|^p)^(1/p), axes kept."""
    if p in (1, 2):
        return b.one("reduce", [x], kind=f"l{p}", over=over, keepdims=True)
    powers = b.scalar("pow", b.scalar("abs", x), b.fill(x, p))
    total = b.one("reduce", [powers], kind="sum", over=over, keepdims=True)
    return b.scalar("pow", total, b.fill(x, 1.0 / p))


@lowering("LpNormalization")
def lp_normalization(b: Builder, n: OnnxNode) -> None:
    """x over its norm along one axis; zero where the norm is zero."""
    x = n.input(0)
    length = _norm(b, x, (b.axis(x, n.attr("axis", -1)),), n.attr("p", 2))
    zero = b.fill(x, 0)
    safe = b.scalar("where", b.scalar("eq", length, zero), b.fill(x, 1), length)
    n.bind(b.scalar("div", x, safe))


@lowering("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder, n: OnnxNode) -> None:
    """(x - mean) / (deviation + 1e-9) over the axes [0, 2, 3] by default."""
    x = n.input(0)
    over = tuple(sorted(b.axis(x, a) for a in n.attr("axes", (0, 2, 3))))
    mean = b.one("reduce", [x], kind="mean", over=over, keepdims=True)
    centred = b.scalar("sub", x, mean)
    variance = b.one("reduce", [b.scalar("mul", centred, centred)], kind="mean", over=over, keepdims=True)
    n.bind(b.scalar("div", centred, b.scalar("add", b.scalar("sqrt", variance), b.fill(x, 1e-9))))
