"""WGSL to CUDA C++, for the WGSL that `edgerun.backends.gpu` writes.

A kernel becomes a struct: bindings and workgroup memory are its members, WGSL functions its member functions, so that
they see both, as in WGSL. Vectors, `select`, `bitcast` and the like come from a header.
"""

from __future__ import annotations

import re

HEADER = """
typedef unsigned int u32;
struct uvec3 { u32 x, y, z; };
#define D __device__ __forceinline__
struct alignas(16) vec4 {
  float x, y, z, w;
  D vec4() {}
  D explicit vec4(float a) : x(a), y(a), z(a), w(a) {}
  D vec4(float a, float b, float c, float d) : x(a), y(b), z(c), w(d) {}
};
D vec4 fma(vec4 a, vec4 b, vec4 c) {
  return vec4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}
D float fma(float a, float b, float c) { return fmaf(a, b, c); }
template <class T> D T select(T no, T yes, bool which) { return which ? yes : no; }
D float select(float no, float yes, bool which) { return which ? yes : no; }
template <class T> D T clamp(T v, T low, T high) { return v < low ? low : v > high ? high : v; }
D float max(float a, float b) { return fmaxf(a, b); }
D float min(float a, float b) { return fminf(a, b); }
D float abs(float a) { return fabsf(a); }
D float sign(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : 0.0f; }
D int sign(int a) { return (a > 0) - (a < 0); }
D float round(float a) { return rintf(a); }
D float as_float(u32 bits) { return __uint_as_float(bits); }
D u32 as_bits(float value) { return __float_as_uint(value); }
D float half_of(float x) {
  unsigned short h;
  float y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
  return y;
}
"""
_TYPES = {"f32": "float", "i32": "int", "u32": "u32", "bool": "bool", "vec4<f32>": "vec4", "vec3<u32>": "uvec3"}
_TYPE = r"vec4<f32>|vec3<u32>|f32|i32|u32|bool"
_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")


def translate(source: str) -> tuple[str, int]:
    """CUDA C++ with the kernel `kernel_main(b0, b1, ...)`, and the size of its blocks in threads."""
    group = re.search(r"@workgroup_size\((\d+), 1, 1\)", source)
    assert group is not None, "every kernel has a workgroup size"
    threads = int(group.group(1))
    bindings = re.findall(r"@group\(0\) @binding\(\d+\) var<storage, read_write> (b\d+): array<([^;]+)>;", source)
    shared = re.findall(r"var<workgroup> (\w+): array<([^,]+), (\d+)>;", source)
    body = re.sub(r"@group\(0\)[^\n]*\n|var<workgroup>[^\n]*\n|@compute[^\n]*\n", "", source)
    body = re.sub(r"var<private> (\w+): u32 = (\w+);", r"u32 \1 = \2;", body)
    body = body.replace("@builtin(workgroup_id) ", "").replace("@builtin(local_invocation_id) ", "")
    body = re.sub(r"unpack2x16float\(pack2x16float\(vec2<f32>\(x, 0\.0\)\)\)\.x", "half_of(x)", body)
    body = body.replace("bitcast<f32>(", "as_float(").replace("bitcast<u32>(", "as_bits(")
    body = body.replace("workgroupBarrier()", "__syncthreads()")
    body = re.sub(rf"fn (\w+)\(([^)]*)\)(?: -> ({_TYPE}))? \{{", _function, body)
    body = re.sub(rf"\b(?:var|let) (\w+): ({_TYPE}) =", lambda m: f"{_TYPES[m.group(2)]} {m.group(1)} =", body)
    body = re.sub(r"\b(?:var|let) (\w+) =", r"auto \1 =", body)
    body = re.sub(r"vec4<f32>\(", "vec4(", body)
    body = re.sub(r"\b(f32|i32)\(", lambda m: f"{_TYPES[m.group(1)]}(", body)
    body = _NUMBER.sub(lambda m: m.group(1) + "f", body)
    pointers = [f"{_TYPES[kind]} *{name}" for name, kind in bindings]
    members = [f"  {p};" for p in pointers] + [f"  {_TYPES[kind]} *{name};" for name, kind, _ in shared]
    memory = [f"  __shared__ {_TYPES[kind]} {name}_[{count}];" for name, kind, count in shared]
    if any(kind == "vec4<f32>" for _, kind, _ in shared):
        # Constructors are not allowed in shared memory.
        memory = [
            f"  __shared__ float4 {n}_[{c}];" if kind == "vec4<f32>" else line
            for (n, kind, c), line in zip(shared, memory, strict=True)
        ]
    fields = [name for name, _ in bindings] + [f"({_TYPES[kind]} *){name}_" for name, kind, _ in shared]
    arguments = ", ".join(pointers)
    text = f"""{HEADER}
struct Kernel {{
{chr(10).join(members)}
{body}
}};
extern "C" __global__ void __launch_bounds__({threads}) kernel_main({arguments}) {{
{chr(10).join(memory)}
  Kernel k = {{{", ".join(fields)}}};
  k.main(uvec3{{blockIdx.x, blockIdx.y, blockIdx.z}}, uvec3{{threadIdx.x, threadIdx.y, threadIdx.z}});
}}
"""
    return text, threads


def _function(found: re.Match[str]) -> str:
    name, parameters, result = found.groups()
    given = []
    for parameter in filter(None, (p.strip() for p in parameters.split(","))):
        word, kind = parameter.split(": ")
        given.append(f"{_TYPES[kind]} {word}")
    return f"D {_TYPES.get(result or '', 'void')} {name}({', '.join(given)}) {{"
