"""The Python records and numbers of the plan format equal those of the C headers."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from edgerun import packed
from edgerun.backends.native import table
from edgerun.dtypes import DType
from edgerun.plan import layout
from edgerun.plan.model import Space
from edgerun_packaging import zig

RECORDS = {
    "er_pheader": layout.HEADER,
    "er_psection": layout.SECTION,
    "er_pdim": layout.DIM,
    "er_ptensor": layout.TENSOR,
    "er_pnode": layout.NODE,
    "er_pio": layout.IO,
    "er_pgolden": layout.GOLDEN,
}
HEADER = (table.CSRC / "plan_format.h").read_text()


def _fields(record: str) -> list[str]:
    body = re.search(r"typedef struct \{([^}]*)\} " + record + ";", HEADER)
    assert body, record
    plain = re.sub(r"/\*.*?\*/", "", body.group(1), flags=re.DOTALL)
    return [
        re.sub(r"\[\d+\]", "", name).strip()
        for declaration in plain.split(";")
        if declaration.strip()
        for name in re.sub(r"^\s*\w+\s+", "", declaration.strip(), count=1).split(",")
    ]


def _python_offsets(record: struct.Struct) -> list[int]:
    """Offsets of the fields of a packed format."""
    offsets, code = [], ""
    for count, kind in re.findall(r"(\d*)([a-zA-Z])", record.format[1:]):
        for _ in range(1 if kind in "sx" else int(count or 1)):
            offsets.append(struct.calcsize("<" + code))
            code += f"{count}{kind}" if kind in "sx" else kind
    return offsets


@pytest.fixture(scope="module")
def c_layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Record to [size, offset of each field] as the C compiler lays them out."""
    lines = []
    for record in RECORDS:
        offsets = ", ".join(f"offsetof({record}, {f})" for f in _fields(record))
        lines.append(f"size_t {record}_[] = {{sizeof({record}), {offsets}}};")
        lines.append(f'printf("{record}"); for (size_t i = 0; i < sizeof {record}_ / sizeof *{record}_; i++)')
        lines.append(f'printf(" %zu", {record}_[i]); printf("\\n");')
    folder = tmp_path_factory.mktemp("layout")
    source = folder / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "plan_format.h"\nint main(void) {\n'
        + "\n".join(lines)
        + "}\n"
    )
    program = folder / "layout"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", zig.host_target().triple, f"-I{table.CSRC}"]
    subprocess.run([*command, str(source), "-o", str(program)], check=True)
    text = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {words[0]: [int(w) for w in words[1:]] for words in (line.split() for line in text.splitlines())}


@pytest.mark.parametrize("record", RECORDS)
def test_sizes_and_offsets(record: str, c_layout: dict[str, list[int]]) -> None:
    size, *offsets = c_layout[record]
    assert RECORDS[record].size == size
    assert _python_offsets(RECORDS[record]) == offsets


@pytest.mark.parametrize(
    ("prefix", "numbers"),
    [
        ("ER_ARCH_", {n.upper(): v for n, v in layout.ARCHES.items()}),
        ("ER_SEC_", {s.name: s.value for s in layout.Section}),
        ("ER_SPACE_", {s.name: s.value for s in Space}),
        ("ER_DIM_", {o.name: o.value for o in layout.DimOp}),
        ("ER_TENSOR_", {f.name: f.value for f in layout.TensorFlag}),
        ("ER_", {d.name: d.code for d in DType if d.code in layout.NATIVE_DTYPES}),
    ],
)
def test_numbers(prefix: str, numbers: dict[str, int]) -> None:
    found: dict[str, int] = {}
    for body in re.findall(r"enum \w+ \{(.*?)\}", re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL), re.DOTALL):
        value = -1
        for word in filter(None, (w.strip() for w in body.split(","))):
            name, _, given = (part.strip() for part in word.partition("="))
            value = int(given) if given else value + 1
            found[name] = value
    for name, number in numbers.items():
        assert found[prefix + name] == number, name


def test_limits() -> None:
    plan_h = (table.CSRC / "plan.h").read_text()
    for name in ("MAX_NODE_INPUTS", "MAX_NODE_OUTPUTS", "MAX_KERNELS"):
        assert int(re.search(rf"ER_{name} = (\d+)", plan_h).group(1)) == getattr(layout, name)  # type: ignore[union-attr]
    assert f"ER_MAX_RANK {layout.MAX_RANK}\n" in HEADER and f"ER_PLAN_VERSION {layout.VERSION}\n" in HEADER
    assert f"ER_GOLDEN_LAYER 0x{layout.GOLDEN_LAYER:x}u" in HEADER
    assert packed.fnv1a(b"plan") == layout.fnv1a(b"plan")


def test_the_kernel_table_matches_the_library() -> None:
    from edgerun.backends.native.binding import library

    names = [k.name for k in table.kernels()]
    lib = library()
    assert [lib.er_kernel_name(i).decode() for i in range(len(names))] == names
    assert lib.er_kernel_name(len(names)) is None and len(set(names)) == len(names)
    sources = (table.CSRC / "kernels" / "all.c").read_text()
    for kernel in table.kernels():
        assert Path(table.CSRC / "kernels" / f"{kernel.file}.c").exists(), kernel
        assert f'"{kernel.file}.c"' in sources and kernel.contract


def test_the_levels_match_the_library() -> None:
    from edgerun.backends.native.binding import host_arch, levels, library

    names = [level.name for level in table.levels()[host_arch()]]
    assert [library().er_level_name(i).decode() for i in range(len(names))] == names
    assert levels()[0] == names[0] and set(levels()) <= set(names)
    for rows in table.levels().values():
        assert rows[0].extends == -1 and rows[0].extent == "FULL"
        assert all(0 <= row.extends < i for i, row in enumerate(rows) if i)
