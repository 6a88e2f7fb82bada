"""What the caller says about input shapes: numbers for whole inputs, numbers or bounds for symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgerun.dims import Bounds, Dim, DimLike, shape_text, substitute
from edgerun.errors import UsageError
from edgerun.ops.registry import TensorType
from edgerun_converters.onnx.types import Symbols

DimOption = int | tuple[int, int | None]
"""A number binds a dimension, (low, high) bounds it; no upper bound is None."""


def bind(
    types: Mapping[str, TensorType],
    shapes: Mapping[str, Sequence[DimLike]],
    dims: Mapping[str, DimOption],
    symbols: Symbols,
) -> tuple[dict[str, TensorType], dict[str, Bounds]]:
    """The inputs' types with everything bound, and the bounds of the symbols that stay.

    `shapes` is by input name, `dims` by the dimension's name in the model or in the graph. Raises UsageError for
    unknown names and for contradictions.
    """
    binding = _Binding()
    result = dict(types)
    for name, shape in shapes.items():
        if name not in types:
            raise UsageError(f"there is no input {name!r}", hint="the model's inputs are: " + ", ".join(types))
        result[name] = binding.shape(name, types[name], shape)
    free = {str(d) for t in types.values() for d in t.shape or () if isinstance(d, Dim)}
    bounds: dict[str, Bounds] = {}
    for name, option in dims.items():
        symbol = symbols.known(name) or name
        if symbol not in free:
            hint = "the model's are: " + ", ".join(sorted(free)) if free else "all dimensions are fixed"
            raise UsageError(f"there is no dimension {name!r}", hint=hint)
        if isinstance(option, int):
            binding.symbol(symbol, option)
        else:
            bounds[symbol] = _bounds(name, option)
    for symbol, number in binding.values.items():
        low, high = bounds.pop(symbol, (0, None))
        if number < low or (high is not None and number > high):
            raise UsageError(f"dimension {symbol} is bound to {number}, outside {low}..{high}")
    for name, known in result.items():
        if known.shape is not None:
            dims_now = tuple(substitute(d, binding.values) for d in known.shape)
            result[name] = TensorType(known.dtype, dims_now, kind=known.kind)
    return result, bounds


def _bounds(name: str, option: tuple[int, int | None]) -> Bounds:
    low, high = option
    if low < 0 or (high is not None and high < low):
        raise UsageError(f"the bounds {low}..{high} of dimension {name} are empty or negative")
    return int(low), None if high is None else int(high)


class _Binding:
    """Numbers for symbols, gathered without contradiction."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def shape(self, name: str, known: TensorType, shape: Sequence[DimLike]) -> TensorType:
        """Bind the symbols in an input's declared shape; the type with the given shape where none is declared."""
        wanted = tuple(d if isinstance(d, Dim) else int(d) for d in shape)
        if any(isinstance(d, int) and d < 0 for d in wanted):
            raise UsageError(f"input {name!r} cannot have the shape {shape_text(wanted)}")
        if known.shape is None:
            return TensorType(known.dtype, wanted, kind=known.kind)
        text = f"input {name!r} of shape {shape_text(known.shape)} cannot have the shape {shape_text(wanted)}"
        if len(known.shape) != len(wanted):
            raise UsageError(text)
        for dim, number in zip(known.shape, wanted, strict=True):
            if dim == number or isinstance(number, Dim):
                continue
            if isinstance(dim, int):
                raise UsageError(text, hint=f"{dim} is fixed in the model")
            self.symbol(str(dim), number)
        return known

    def symbol(self, symbol: str, number: int) -> None:
        """Bind one symbol."""
        if number < 0:
            raise UsageError(f"dimension {symbol} cannot be {number}")
        if self.values.setdefault(symbol, number) != number:
            raise UsageError(f"dimension {symbol} is bound to {self.values[symbol]} and to {number}")
