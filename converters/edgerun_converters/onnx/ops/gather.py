"""Indexing operators."""

from __future__ import annotations

from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("Gather")
def gather(b: Builder, n: OnnxNode) -> None:
    """Slices at the indices."""
    n.bind(b.one("gather", n.inputs, axis=b.axis(n.input(0), n.attr("axis", 0))))


@lowering("GatherElements")
def gather_elements(b: Builder, n: OnnxNode) -> None:
    """One element per index."""
    n.bind(b.one("gather_elements", n.inputs, axis=b.axis(n.input(0), n.attr("axis", 0))))


@lowering("GatherND")
def gather_nd(b: Builder, n: OnnxNode) -> None:
    """Slices at index tuples."""
    n.bind(b.one("gather_nd", n.inputs, batch_dims=n.attr("batch_dims", 0)))


@lowering("ScatterElements", "Scatter")
def scatter_elements(b: Builder, n: OnnxNode) -> None:
    """One element per index."""
    axis = b.axis(n.input(0), n.attr("axis", 0))
    n.bind(b.one("scatter_elements", n.inputs, axis=axis, reduction=n.attr("reduction", "none")))


@lowering("ScatterND")
def scatter_nd(b: Builder, n: OnnxNode) -> None:
    """Slices at index tuples."""
    n.bind(b.one("scatter_nd", n.inputs, reduction=n.attr("reduction", "none")))


@lowering("TensorScatter")
def tensor_scatter(b: Builder, n: OnnxNode) -> None:
    """Write into a key or value cache."""
    axis = b.axis(n.input(0), n.attr("axis", -2))
    n.bind(b.one("tensor_scatter", n.inputs, axis=axis, mode=n.attr("mode", "linear")))


@lowering("OneHot")
def one_hot(b: Builder, n: OnnxNode) -> None:
    """The axis counts in the result."""
    indices, depth, values = (n.input(i) for i in range(3))
    axis = n.attr("axis", -1)
    if b.type(indices).shape is not None and axis < 0:
        axis += b.rank(indices) + 1
    n.bind(b.one("one_hot", [indices, depth, values], axis=axis))


@lowering("Compress")
def compress(b: Builder, n: OnnxNode) -> None:
    """Along an axis, or of the flat tensor."""
    axis = n.attr("axis", None)
    n.bind(b.one("compress", n.inputs, axis=None if axis is None else b.axis(n.input(0), axis)))


@lowering("NonZero")
def nonzero(b: Builder, n: OnnxNode) -> None:
    """Positions of the non-zero elements."""
    n.bind(b.one("nonzero", n.inputs))


@lowering("Trilu")
def trilu(b: Builder, n: OnnxNode) -> None:
    """Upper triangles by default."""
    n.bind(b.one("trilu", n.inputs, upper=bool(n.attr("upper", 1))))


@lowering("ReverseSequence")
def reverse_sequence(b: Builder, n: OnnxNode) -> None:
    """Batch and time axes are 0 and 1 in either order."""
    batch, time = n.attr("batch_axis", 1), n.attr("time_axis", 0)
    if {batch, time} != {0, 1}:
        raise UnsupportedError(f"ReverseSequence with batch axis {batch} and time axis {time}")
    n.bind(b.one("reverse_sequence", n.inputs, batch_axis=batch, time_axis=time))


@lowering("Unique")
def unique(b: Builder, n: OnnxNode) -> None:
    """Values, first indices, inverse, counts."""
    axis = n.attr("axis", None)
    place = None if axis is None else b.axis(n.input(0), axis)
    n.bind(*b.emit("unique", [n.input(0)], axis=place, sorted=bool(n.attr("sorted", 1))))


@lowering("TopK")
def topk(b: Builder, n: OnnxNode) -> None:
    """k is an attribute before opset 10."""
    x = n.input(0)
    axis = b.axis(x, n.attr("axis", -1))
    options = {"axis": axis, "largest": bool(n.attr("largest", 1)), "sorted": bool(n.attr("sorted", 1))}
    known = [n.attr("k")] if n.opset < 10 else b.known(n.input(1))
    if known is not None:
        n.bind(*b.emit("topk", [x], count=known[0], **options))
    else:
        k = b.reshape(n.input(1), ()) if b.type(n.input(1)).shape == (1,) else n.input(1)
        n.bind(*b.emit("topk", [x, k], **options))
