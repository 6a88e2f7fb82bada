"""Weights of 4 or 8 bits in blocks of 32 (or 16), packed in tiles of 16 rows for csrc/kernels/group.c."""

from __future__ import annotations

import numpy as np

from edgerun.backends.native.lowering import Lowering, Param
from edgerun.dims import product
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

ROWS, BLOCK = 16, 32
"""MG_ROWS and MG_BLOCK of group.c."""


def pack(
    codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, n: int, k: int, bits: int
) -> tuple[np.ndarray, bool, bool]:
    """(u8 [tiles, blocks, bytes], whether there are minima, whether scales are f32).

    codes: u8 [N, K * bits / 8]; scales [N, K / 32] or [N, K / 16]; zeros like the first or None. Scales and minima are
    stored as f16 where that changes no scale, and no minimum by more than rounding of f32 does.
    """
    tiles, blocks = -(-n // ROWS), k // BLOCK
    raw = codes.reshape(n, -1)
    unpacked = raw if bits == 8 else np.stack([raw & 15, raw >> 4], -1).reshape(n, k)
    padded = np.zeros((tiles * ROWS, k), np.uint8)
    padded[:n] = unpacked
    if bits == 8:
        table = padded.reshape(tiles, ROWS, blocks, 8, 4).transpose(0, 2, 3, 1, 4)
    else:
        halves = padded.reshape(tiles, ROWS, blocks, 2, 4, 4).transpose(3, 0, 2, 4, 1, 5)
        table = halves[0] | halves[1] << 4
    parts = [np.ascontiguousarray(table).reshape(tiles, blocks, -1)]
    given = scales.reshape(n, blocks, -1).astype(np.float32)
    numbers = [given[..., i] for i in range(given.shape[2])]
    if zeros is not None:
        numbers.append(-zeros.reshape(n, blocks).astype(np.float32) * numbers[0])
    wide = not all(_fits_half(a, exact=zeros is None or i == 0) for i, a in enumerate(numbers))
    for array in numbers:
        rows = np.zeros((tiles * ROWS, blocks), np.float32 if wide else np.float16)
        rows[:n] = array
        tiled = np.ascontiguousarray(rows.reshape(tiles, ROWS, blocks).transpose(0, 2, 1))
        parts.append(tiled.view(np.uint8).reshape(tiles, blocks, -1))
    return np.concatenate(parts, -1), zeros is not None, wide


def _fits_half(array: np.ndarray, *, exact: bool) -> bool:
    with np.errstate(over="ignore"):
        back = array.astype(np.float16).astype(np.float32)
    return bool((np.abs(back - array) <= (0.0 if exact else 2.0**-21) * np.abs(array)).all())


def _weights(cx: Lowering, names: list[str], node: Node) -> tuple[str, list[Param]]:
    """The packed weights, one copy for each matrix of the graph, and the kernel's parameters."""
    found = [cx.constant(name) if name else None for name in names]
    for name, data in zip(names, found, strict=True):
        if name and data is None:
            raise UnsupportedError(f"{name!r}, a parameter of packed weights, is computed at run time")
    codes, scales, zeros = found
    assert codes is not None and scales is not None
    k, n, bits = node.attrs["k"], node.attrs["n"], node.attrs.get("bits", 4)
    if zeros is not None and zeros.dtype == np.uint8:
        from edgerun.backends.numpy.quant import unpack_codes

        zeros = unpack_codes(zeros.reshape(n, -1), bits)[:, : k // BLOCK]
    packed, minima, wide = pack(codes, scales, zeros, n, k, bits)
    name = cx.weight(packed, names[0], key=(names[0], "tiles of 16 rows"))
    return name, [k, n, bits, int(minima), int(wide), int(node.attrs["block"] == BLOCK // 2)]


def _padded(names: list[str], count: int) -> list[str]:
    return [*names, *[""] * (count - len(names))]


def matmul(node: Node, cx: Lowering) -> None:
    """matmul_nbits with a rounded to 8 bits."""
    a, *names, _, bias = _padded(node.inputs, 6)
    packed, params = _weights(cx, names, node)
    k, bits = node.attrs["k"], node.attrs.get("bits", 4)
    rows = product(cx.shape(a)[:-1])
    cx.emit(
        "matmul_group", [a, packed, bias], [node.outputs[0]], params, scratch=rows * (k + k // 8 * 3),
        macs=product((*cx.shape(node.outputs[0]), k)), why=f"{bits}-bit weights in tiles of 16 rows, 8-bit products",
    )  # fmt: skip


def rows(node: Node, cx: Lowering) -> None:
    """rows_nbits from the tiles that a product with the same matrix reads."""
    index, *names = _padded(node.inputs, 4)
    block, plain = node.attrs["block"], not names[2] and node.attrs["bits"] == 8
    if node.attrs["k"] % BLOCK or not (block == BLOCK or (block == BLOCK // 2 and plain)):
        raise UnsupportedError(f"rows in blocks of {block} are not done by the native backend")
    packed, params = _weights(cx, names, node)
    cx.emit("rows_group", [packed, index], [node.outputs[0]], params, why="read back from tiles of 16 rows")
