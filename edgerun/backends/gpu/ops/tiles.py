"""The tiled product behind matmul, convolution and attention: C[z, m, n] = sum over k of A(z, m, k) B(z, k, n).

A workgroup computes a square tile of C, each invocation 4 x 4 of it; tiles of A and B of depth 16 go through
workgroup memory. A and B are expressions, so that a convolution reads its image in place (implicit GEMM). Where four k
of A, or four n of B, lie together, they are read as vectors. A product with few tiles and a long k is split along k:
parts of the sums go to a temporary tensor, and a second kernel adds them up and applies the epilogue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from edgerun.backends.gpu.lowering import Lowering
from edgerun.backends.gpu.wgsl import PRELUDE, Kernel, header
from edgerun.dtypes import DType

DEPTH = 16
WANTED = 264
"""Workgroups that keep a large GPU busy: two for each of its processors."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix as an expression over b0 (A: of z, m, k) or b1 (B: of z, k, n), read only inside the sizes.

    `statements` come before it and may return zero. With `vector`, `text` gives a vec4<f32> of four k (A) or four n (B)
    that begin at a multiple of four, and the buffer is an array of such.
    """

    text: str
    statements: str = ""
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes and operands; z < batch."""

    batch: int
    m: int
    n: int
    k: int
    a: Operand
    b: Operand


def emit(
    cx: Lowering, operands: Sequence[str], p: Product, out: str, epilogue: str = "", extra: Sequence[str] = ()
) -> None:
    """Compute a product into `out` [batch, m, n].

    `epilogue`: statements on `v` at (z, m, n) that read the tensors `extra` as b2, b3, ...
    """
    tile = 64 if p.m > 32 and p.n > 32 else 32
    tiles = p.batch * -(-p.m // tile) * -(-p.n // tile)
    split = 1
    while tiles * split < WANTED and p.k // (split * 2) >= 4 * DEPTH and split < 16:
        split *= 2
    kinds = ["vec4<f32>" if p.a.vector else "f32", "vec4<f32>" if p.b.vector else "f32"]
    element = f"(z * {p.m}u + m) * {p.n}u + n"
    if split == 1:
        types = [*kinds, *(cx.kind(x) for x in (*extra, out))]
        store = f"{epilogue}\n  b{2 + len(extra)}[{element}] = v;"
        cx.emit(kernel(types, p, tile, 1, store), [*operands, *extra, out])
        return
    size = p.batch * p.m * p.n
    parts = cx.temp(DType.F32, (split, size))
    cx.emit(kernel([*kinds, "f32"], p, tile, split, f"  b2[part * {size}u + {element}] = v;"), [*operands, parts])
    # Here one buffer of parts takes the place of both operands.
    tail = re.sub(r"\bb(\d+)\[", lambda found: f"b{int(found.group(1)) - 1}[", epilogue)
    body = f"""  let n = i % {p.n}u;
  let m = (i / {p.n}u) % {p.m}u;
  let z = i / {p.m * p.n}u;
  var v: f32 = 0.0;
  for (var part: u32 = 0u; part < {split}u; part = part + 1u) {{ v = v + b0[part * {size}u + i]; }}
{tail}
  b{1 + len(extra)}[i] = v;"""
    cx.pointwise([parts, *extra], out, body, size)


def kernel(types: Sequence[str], p: Product, tile: int, split: int, store: str) -> Kernel:
    """The kernel; `store` are statements that store `v` for z, m, n and, when split, `part`."""
    across, down = -(-p.n // tile), -(-p.m // tile)
    threads, quarter, pitch = (tile // 4) ** 2, tile // 4, tile + 4
    steps = -(-p.k // DEPTH)
    per_part = -(-steps // split) * DEPTH
    loads = tile * DEPTH // 4 // threads
    a_kind, b_kind = ("vec4<f32>" if o.vector else "f32" for o in (p.a, p.b))
    lines = [header(types), PRELUDE]
    lines.append(f"""
var<workgroup> As: array<f32, {DEPTH * pitch}>;
var<workgroup> Bs: array<vec4<f32>, {DEPTH * quarter}>;
fn load_a(z: u32, m: u32, k: u32) -> {a_kind} {{
  if (m >= {p.m}u || k >= {p.k}u) {{ return {a_kind}(0.0); }}
{p.a.statements}
  return {p.a.text};
}}
fn load_b(z: u32, k: u32, n: u32) -> {b_kind} {{
  if (n >= {p.n}u || k >= {p.k}u) {{ return {b_kind}(0.0); }}
{p.b.statements}
  return {p.b.text};
}}
fn store(z: u32, part: u32, m: u32, n: u32, sum: f32) {{
  if (m >= {p.m}u || n >= {p.n}u) {{ return; }}
  var v = sum;
{store}
}}
@compute @workgroup_size({threads}, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {{
  let t = lid.x;
  let z = wid.z / {split}u;
  let part = wid.z % {split}u;
  let m0 = wid.y * {tile}u;
  let n0 = wid.x * {tile}u;
  let mi = (t / {quarter}u) * 4u;
  let ni = t % {quarter}u;
  let last = min((part + 1u) * {per_part}u, {p.k}u);
""")
    lines += [f"  var s{r}: vec4<f32> = vec4<f32>(0.0);\n" for r in range(4)]
    lines.append(f"  for (var k0: u32 = part * {per_part}u; k0 < last; k0 = k0 + {DEPTH}u) {{\n")
    for e in range(loads):
        # Four k of one row of A, transposed; four n of one k of B.
        lines.append(
            f"    {{ let q = t + {e * threads}u; let r = q / {DEPTH // 4}u; let c = (q % {DEPTH // 4}u) * 4u;\n"
        )
        if p.a.vector:
            lines.append("      let x = load_a(z, m0 + r, k0 + c);\n")
        else:
            each = ", ".join(f"load_a(z, m0 + r, k0 + c + {i}u)" for i in range(4))
            lines.append(f"      let x = vec4<f32>({each});\n")
        lines += [f"      As[(c + {i}u) * {pitch}u + r] = x.{part};\n" for i, part in enumerate("xyzw")]
        lines.append(f"      let d = q / {quarter}u; let w = q % {quarter}u;\n")
        if p.b.vector:
            lines.append("      Bs[q] = load_b(z, k0 + d, n0 + w * 4u); }\n")
        else:
            each = ", ".join(f"load_b(z, k0 + d, n0 + w * 4u + {i}u)" for i in range(4))
            lines.append(f"      Bs[q] = vec4<f32>({each}); }}\n")
    lines.append(f"    workgroupBarrier();\n    for (var k: u32 = 0u; k < {DEPTH}u; k = k + 1u) {{\n")
    lines.append(f"      let w = Bs[k * {quarter}u + ni];\n      let a = k * {pitch}u + mi;\n")
    lines += [f"      s{r} = fma(vec4<f32>(As[a + {r}u]), w, s{r});\n" for r in range(4)]
    lines.append("    }\n    workgroupBarrier();\n  }\n")
    for r in range(4):
        for c, lane in enumerate("xyzw"):
            lines.append(f"  store(z, part, m0 + mi + {r}u, n0 + ni * 4u + {c}u, s{r}.{lane});\n")
    lines.append("}\n")
    return Kernel("".join(lines), (across, down, p.batch * split))
