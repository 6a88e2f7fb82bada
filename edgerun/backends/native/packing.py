"""Weights in the order that the C micro-kernels read them; the twin of csrc/kernels/gemm.h.

A K x N matrix becomes panels of NR columns, each [K][width], the last one NR / 2 wide when that is enough. NR depends
on the architecture only, so that one packed copy serves every ISA level.
"""

from __future__ import annotations

import math

import numpy as np

PANEL = {"x86_64": 32, "aarch64": 8, "armv7": 4, "riscv64": 8, "wasm32": 8}
"""NR: columns of a panel."""
DEPTHWISE_BLOCK = {"x86_64": 16, "aarch64": 4, "armv7": 4, "riscv64": 4, "wasm32": 4}
"""Channels of a block of depthwise filters."""
ROWS = {"x86_64": 14, "aarch64": 8, "armv7": 6, "riscv64": 4, "wasm32": 4}
"""MR of the widest ISA level, for cost models."""


def half_panel(arch: str) -> int:
    """Width of the narrow last panel."""
    return PANEL[arch] // 2 if PANEL[arch] > 4 else PANEL[arch]


def padded_columns(n: int, arch: str) -> int:
    """N rounded up to whole panels."""
    width, half = PANEL[arch], half_panel(arch)
    rest = n % width
    return n - rest + (0 if rest == 0 else half if rest <= half else width)


def pack_matrix(matrix: np.ndarray, arch: str) -> np.ndarray:
    """[K, N] float32 to the flat panels, columns padded with zeros: K * padded_columns(N) floats."""
    k, n = matrix.shape
    width, total = PANEL[arch], padded_columns(n, arch)
    padded = np.zeros((k, total), np.float32)
    padded[:, :n] = matrix
    return np.concatenate(
        [padded[:, j : j + width].reshape(-1) for j in range(0, total, width)] or [padded.reshape(-1)]
    )


def pad_vector(vector: np.ndarray, arch: str) -> np.ndarray:
    """[N] float32 padded with zeros to whole panels, as the micro-kernels load biases."""
    result = np.zeros(padded_columns(vector.size, arch), np.float32)
    result[: vector.size] = vector
    return result


def pack_filters(weight: np.ndarray, group: int, arch: str) -> np.ndarray:
    """Convolution weights [O, *kernel, C/group] as one packed matrix per group, K in the order (*kernel, C/group)."""
    outputs = weight.shape[0] // group
    taps = math.prod(weight.shape[1:])
    matrices = [weight[g * outputs : (g + 1) * outputs].reshape(outputs, taps).T for g in range(group)]
    return np.concatenate([pack_matrix(m, arch) for m in matrices])


def pad_biases(bias: np.ndarray, group: int, arch: str) -> np.ndarray:
    """[O] padded group by group."""
    return np.concatenate([pad_vector(part, arch) for part in np.split(bias, group)])


def pack_depthwise(weight: np.ndarray, bias: np.ndarray | None, arch: str) -> np.ndarray:
    """Depthwise weights [C, KH, KW, 1] and bias [C] as [blocks][1 + KH * KW][block], bias first."""
    channels, taps, block = weight.shape[0], int(np.prod(weight.shape[1:])), DEPTHWISE_BLOCK[arch]
    blocks = -(-channels // block)
    table = np.zeros((blocks * block, 1 + taps), np.float32)
    table[:channels, 1:] = weight.reshape(channels, taps)
    if bias is not None:
        table[:channels, 0] = bias
    return table.reshape(blocks, block, 1 + taps).transpose(0, 2, 1).reshape(-1)


def pack_transposed(weight: np.ndarray, group: int, arch: str) -> np.ndarray:
    """Transposed weights [C, *kernel, O/group] as one packed [C/group] x [taps * O/group] matrix per group."""
    inputs = weight.shape[0] // group
    columns = math.prod(weight.shape[1:])
    matrices = [weight[g * inputs : (g + 1) * inputs].reshape(inputs, columns) for g in range(group)]
    return np.concatenate([pack_matrix(m, arch) for m in matrices])


WINOGRAD_BLOCK_BYTES = 1024 * 1024
WINOGRAD_SLICE_BYTES = 1280 * 1024
WINOGRAD_LEAST = 28
WINOGRAD_CHUNK = 28
WINOGRAD_SKEW = 16
"""See csrc/kernels/winograd.c."""


def winograd_scratch(tiles: int, tile: int, channels: int, arch: str) -> tuple[int, int]:
    """Bytes that a Winograd convolution of `tiles` tiles needs: the transformed input of a block; those of a thread."""
    positions = (tile + 2) ** 2
    most = max(WINOGRAD_BLOCK_BYTES // (positions * channels * 4), WINOGRAD_LEAST)
    blocks = -(-tiles // most)
    wide = positions * channels * PANEL[arch] * 4 <= WINOGRAD_SLICE_BYTES
    columns = PANEL[arch] if wide else half_panel(arch)
    shared = -(-tiles // blocks) * channels + WINOGRAD_SKEW
    own = (channels + WINOGRAD_CHUNK) * columns + 2 * WINOGRAD_SKEW
    return positions * shared * 4, positions * own * 4
