"""Einsum, any equation, as transposes, reshapes, sums, products and matmuls.

Operands are contracted from left to right. Each is a `_Term`: a tensor with one label an axis. Repeated labels become
diagonals first; labels that nothing else needs are summed at once; then a pair is multiplied, as a batched matmul when
they share summed labels, else elementwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgerun.dims import DimLike, product
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.graph import Shape
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor and the label of each axis, all different. Ellipsis axes are called "0", "1" ... from the right."""

    name: str
    labels: tuple[str, ...]


@lowering("Einsum")
def einsum(b: Builder, n: OnnxNode) -> None:
    names = [name for name in n.inputs if name]
    inputs, output = parse(str(n.attr("equation")), [b.rank(name) for name in names])
    terms = [_diagonal(b, name, labels) for name, labels in zip(names, inputs, strict=True)]
    terms = _without_mismatched_ones(b, terms)
    result = terms[0]
    for position, term in enumerate(terms[1:], 1):
        later = {label for t in terms[position + 1 :] for label in t.labels} | set(output)
        result = _contract(b, _summed(b, result, later | set(term.labels)), term, later)
    result = _summed(b, result, set(output))
    n.bind(b.transpose(result.name, [result.labels.index(label) for label in output]))


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """(labels of each operand, labels of the output). Raises UnsupportedError for a malformed equation."""
    text = re.sub(r"\s", "", equation)
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise UnsupportedError(f"einsum equation {equation!r} names {len(parts)} operands, the node has {len(ranks)}")
    inputs = [_expand(part, rank, equation) for part, rank in zip(parts, ranks, strict=True)]
    widest = max((sum(label.isdigit() for label in labels) for labels in inputs), default=0)
    ellipsis = tuple(str(k) for k in reversed(range(widest)))
    if arrow:
        output = _tokens(right, equation)
        labels = [e for token in output for e in (ellipsis if token == "..." else (token,))]
    else:
        counts: dict[str, int] = {}
        for label in (label for labels in inputs for label in labels):
            counts[label] = counts.get(label, 0) + 1
        labels = [*ellipsis, *sorted(label for label, count in counts.items() if count == 1 and not label.isdigit())]
    known = {label for operand in inputs for label in operand}
    if len(set(labels)) != len(labels) or not set(labels) <= known:
        raise UnsupportedError(f"the output of the einsum equation {equation!r} repeats or invents a label")
    return inputs, tuple(labels)


def _tokens(part: str, equation: str) -> list[str]:
    tokens = re.findall(r"\.\.\.|[A-Za-z]", part)
    if "".join(tokens) != part or tokens.count("...") > 1:
        raise UnsupportedError(f"the einsum equation {equation!r} is malformed")
    return tokens


def _expand(part: str, rank: int, equation: str) -> tuple[str, ...]:
    """The labels of one operand, its ellipsis written out."""
    tokens = _tokens(part, equation)
    hidden = rank - len(tokens) + 1
    if "..." not in tokens:
        if len(tokens) != rank:
            raise ShapeError(f"{part!r} of the einsum equation {equation!r} does not fit an operand of rank {rank}")
        return tuple(tokens)
    if hidden < 0:
        raise ShapeError(f"{part!r} of the einsum equation {equation!r} needs more than rank {rank}")
    place = tokens.index("...")
    return (*tokens[:place], *(str(k) for k in reversed(range(hidden))), *tokens[place + 1 :])


def _diagonal(b: Builder, name: str, labels: tuple[str, ...]) -> _Term:
    """Take diagonals until no label repeats: two equal axes of size n, flattened, are read in steps of n + 1."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
        shape = b.shape(name)
        size = shape[first]
        if size != shape[second] and isinstance(size, int) and isinstance(shape[second], int):
            raise ShapeError(f"einsum label {label!r} stands for the sizes {size} and {shape[second]}")
        outer = [shape[axis] for axis in rest]
        flat = b.reshape(b.transpose(name, [*rest, first, second]), [*outer, size * size])
        name = b.one("slice", [flat], ranges=((len(rest), 0, size, size + 1),))
        labels = (*(labels[axis] for axis in rest), label)
    return _Term(name, labels)


def _sizes(b: Builder, terms: Iterable[_Term]) -> dict[str, DimLike]:
    """The size of each label: the first that is not 1. Raises ShapeError when two operands disagree."""
    sizes: dict[str, DimLike] = {}
    for term in terms:
        for label, size in zip(term.labels, b.shape(term.name), strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size != 1 and size != known and isinstance(size, int):
                if isinstance(known, int):
                    raise ShapeError(f"einsum label {label!r} stands for the sizes {known} and {size}")
                sizes[label] = size
    return sizes


def _without_mismatched_ones(b: Builder, terms: list[_Term]) -> list[_Term]:
    """Drop axes of size 1 whose label is longer elsewhere: the operand is constant along it."""
    sizes = _sizes(b, terms)
    result = []
    for term in terms:
        shape = b.shape(term.name)
        keep = [k for k, label in enumerate(term.labels) if not (shape[k] == 1 and sizes[label] != 1)]
        name = b.reshape(term.name, [shape[k] for k in keep]) if len(keep) < len(shape) else term.name
        result.append(_Term(name, tuple(term.labels[k] for k in keep)))
    return result


def _summed(b: Builder, term: _Term, needed: set[str]) -> _Term:
    """Sum over the labels that are not `needed`."""
    over = tuple(k for k, label in enumerate(term.labels) if label not in needed)
    if not over:
        return term
    name = b.one("reduce", [term.name], kind="sum", over=over, keepdims=False)
    return _Term(name, tuple(label for label in term.labels if label in needed))


def _contract(b: Builder, left: _Term, right: _Term, later: set[str]) -> _Term:
    """The product of two terms, summed over the labels that are not needed `later`."""
    right = _summed(b, right, later | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    inner = [label for label in shared if label not in later]
    batch = [label for label in shared if label in later]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    sizes = _sizes(b, (left, right))
    if not inner:
        order = [*batch, *rows, *columns]
        a = _arranged(b, left, [*batch, *rows], [sizes[k] for k in (*batch, *rows)] + [1] * len(columns))
        c = _arranged(
            b, right, [*batch, *columns], [sizes[k] for k in batch] + [1] * len(rows) + [sizes[k] for k in columns]
        )
        return _Term(b.scalar("mul", a, c), tuple(order))
    outer = [sizes[k] for k in batch]
    m, k, n = (product(sizes[label] for label in group) for group in (rows, inner, columns))
    a = _arranged(b, left, [*batch, *rows, *inner], [*outer, m, k])
    c = _arranged(b, right, [*batch, *inner, *columns], [*outer, k, n])
    y = b.reshape(b.one("matmul", [a, c]), [*outer, *(sizes[x] for x in rows), *(sizes[x] for x in columns)])
    return _Term(y, (*batch, *rows, *columns))


def _arranged(b: Builder, term: _Term, order: Sequence[str], shape: Sequence[DimLike]) -> str:
    """The term with its axes in `order`, reshaped."""
    to: Shape = tuple(shape)
    return b.reshape(b.transpose(term.name, [term.labels.index(label) for label in order]), to)
