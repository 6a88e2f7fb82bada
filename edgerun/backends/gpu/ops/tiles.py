"""The tiled product behind matmul and convolution: C[z, m, n] = sum over k of A(z, m, k) B(z, k, n), with an epilogue.

A workgroup of 64 invocations computes a tile of 32 x 32, each invocation 4 x 4; tiles of A and B of depth 16 go through
workgroup memory. A and B are expressions, so that a convolution reads its image in place (implicit GEMM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgerun.backends.gpu.wgsl import PRELUDE, Kernel, header

TILE = 32
DEPTH = 16


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes and expressions. `a` may use z, m, k, `b` z, k, n; both are f32 and are only read inside the sizes.

    `store` are statements that store `v` for z, m, n. `types`: of the bindings.
    """

    batch: int
    m: int
    n: int
    k: int
    a: str
    b: str
    store: str
    a_statements: str = ""
    """Statements before `a`, which declares what it uses; the value is `a`."""


def product(types: Sequence[str], p: Product) -> Kernel:
    """The kernel of a product."""
    across, down = -(-p.n // TILE), -(-p.m // TILE)
    half, quarter = TILE * DEPTH // 64, TILE // 4
    text = [header(types), PRELUDE]
    text.append(f"var<workgroup> As: array<f32, {TILE * DEPTH}>;\nvar<workgroup> Bs: array<f32, {TILE * DEPTH}>;\n")
    text.append(f"""
fn load_a(z: u32, m: u32, k: u32) -> f32 {{
  if (m >= {p.m}u || k >= {p.k}u) {{ return 0.0; }}
{p.a_statements}
  return {p.a};
}}
fn load_b(z: u32, k: u32, n: u32) -> f32 {{
  if (n >= {p.n}u || k >= {p.k}u) {{ return 0.0; }}
  return {p.b};
}}
fn store(z: u32, m: u32, n: u32, sum: f32) {{
  if (m >= {p.m}u || n >= {p.n}u) {{ return; }}
  var v = sum;
{p.store}
}}
@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {{
  let t = lid.x;
  let z = wid.z;
  let m0 = wid.y * {TILE}u;
  let n0 = wid.x * {TILE}u;
  let mi = (t / {quarter}u) * 4u;
  let ni = (t % {quarter}u) * 4u;
""")
    text += [f"  var s{r}: vec4<f32> = vec4<f32>(0.0);\n" for r in range(4)]
    text.append(f"""  for (var k0: u32 = 0u; k0 < {p.k}u; k0 = k0 + {DEPTH}u) {{
    for (var e: u32 = 0u; e < {half}u; e = e + 1u) {{
      let q = e * 64u + t;
      As[q] = load_a(z, m0 + q / {DEPTH}u, k0 + q % {DEPTH}u);
      Bs[q] = load_b(z, k0 + q / {TILE}u, n0 + q % {TILE}u);
    }}
    workgroupBarrier();
    for (var k: u32 = 0u; k < {DEPTH}u; k = k + 1u) {{
      let bk = k * {TILE}u + ni;
      let w = vec4<f32>(Bs[bk], Bs[bk + 1u], Bs[bk + 2u], Bs[bk + 3u]);
""")
    text += [f"      s{r} = fma(vec4<f32>(As[(mi + {r}u) * {DEPTH}u + k]), w, s{r});\n" for r in range(4)]
    text.append("    }\n    workgroupBarrier();\n  }\n")
    for r in range(4):
        for c, part in enumerate("xyzw"):
            text.append(f"  store(z, m0 + mi + {r}u, n0 + ni + {c}u, s{r}.{part});\n")
    text.append("}\n")
    return Kernel("".join(text), (across, down, p.batch))
