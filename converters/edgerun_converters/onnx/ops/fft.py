"""DFT, STFT, window functions and MelWeightMatrix."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import from_onnx
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("DFT")
def dft(b: Builder, n: OnnxNode) -> None:
    x, length, axes = n.input(0), n.input(1), n.input(2)
    axis: int | None = int(n.attr("axis", 1)) if n.opset < 20 else -2
    if axes:
        known = b.static(axes)
        axis = None if known is None else int(known.reshape(-1)[0])
    size = _number(b, length)
    n.bind(
        b.one(
            "dft",
            [x, length if size is None else "", axes if axis is None else ""],
            axis=None if axis is None else b.axis(x, axis),
            size=size,
            inverse=bool(n.attr("inverse", 0)),
            onesided=bool(n.attr("onesided", 0)),
        )
    )


@lowering("STFT")
def stft(b: Builder, n: OnnxNode) -> None:
    signal, step, window, length = (n.input(k) for k in range(4))
    if b.rank(signal) == 2:
        signal = b.reshape(signal, (*b.shape(signal), 1))
    hop, size = _number(b, step), _number(b, length)
    n.bind(
        b.one(
            "stft",
            [signal, window, "" if isinstance(hop, int) else step, length if size is None else ""],
            hop=hop if isinstance(hop, int) else None,
            size=size,
            onesided=bool(n.attr("onesided", 1)),
        )
    )


def _number(b: Builder, name: str) -> DimLike | None:
    """The value of a scalar input, or None when it is absent or only known at run time."""
    known = b.known(name)
    return known[0] if known else None


@lowering("HannWindow", "HammingWindow", "BlackmanWindow")
def window(b: Builder, n: OnnxNode) -> None:
    n.bind(
        b.one(
            "window",
            [n.input(0)],
            kind=n.op_type.removesuffix("Window").lower(),
            periodic=bool(n.attr("periodic", 1)),
            dtype=from_onnx(n.attr("output_datatype", 1)),
        )
    )


@lowering("MelWeightMatrix")
def mel_weight_matrix(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("mel_weights", [n.input(k) for k in range(5)], dtype=from_onnx(n.attr("output_datatype", 1))))
