"""What `edgerun inspect` tells of packed files: bytes by part, differences, memory over time."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from edgerun.cli.inspect_packed import ROWS, timeline
from edgerun.cli.main import run
from edgerun.packed import map_plan
from edgerun.plan import PlanReader
from edgerun_packaging.breakdown import breakdown, compare, isa_floor
from edgerun_packaging.chart import COLOURS
from edgerun_packaging.memory import arena_report
from edgerun_packaging.stubs import ARCHES

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_parts_add_up_to_the_file(packed: Callable[[str], Path], arch: str) -> None:
    path = packed(arch)
    parts = {r["part"]: r["bytes"] for r in breakdown(path)}
    assert sum(parts.values()) == path.stat().st_size
    assert min(parts.values()) > 0 and parts["stub: code"] > 100_000
    assert parts["weights: dense1+relu3"] > 130_000


def test_a_plan_alone_adds_up_too(model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "model.plan"
    plan.write_bytes(map_plan(model))
    assert sum(r["bytes"] for r in breakdown(plan)) == plan.stat().st_size


def test_differences_are_ranked() -> None:
    old = [{"part": "a", "bytes": 10}, {"part": "b", "bytes": 5}, {"part": "gone", "bytes": 3}]
    new = [{"part": "a", "bytes": 10}, {"part": "b", "bytes": 6}, {"part": "new", "bytes": 7}]
    assert [(r["part"], r["old"], r["new"], r["change"]) for r in compare(old, new)] == [
        ("new", 0, 7, 7), ("gone", 3, 0, -3), ("b", 5, 6, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("arch", ARCHES)
def test_the_weakest_instruction_set_is_named(arch: str) -> None:
    assert isa_floor(arch)


def test_the_report(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bytes"] == sum(r["bytes"] for r in document["sizes"])
    assert document["memory"]["arena_bytes"] >= document["memory"]["lower_bound_bytes"] > 0
    assert document["manifest"]["golden"] and document["isa_floor"]
    assert run(["inspect", str(model), "--diff", str(model), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["diff"] == []
    assert run(["inspect", str(model)]) == 0
    assert "<- peak" in capsys.readouterr().out


def test_the_chart(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("memory.svg", "memory.png"):
        assert run(["inspect", str(model), "--chart", str(tmp_path / name)]) == 0
    report = arena_report(PlanReader(map_plan(model)))
    drawing = ElementTree.parse(tmp_path / "memory.svg").getroot()
    boxes = [r for r in drawing.iter("{http://www.w3.org/2000/svg}rect") if len(r)]
    assert len(boxes) == len(report["tensors"])
    assert {b[0].text.split(":")[0] for b in boxes} == {t["tensor"] for t in report["tensors"]}
    with image.open(tmp_path / "memory.png") as picture:
        colours = {c for _, c in picture.convert("RGB").getcolors(1 << 20)}
    assert tuple(bytes.fromhex(COLOURS[0][1:])) in colours
    assert run(["inspect", str(model), "--chart", str(tmp_path / "memory.svg")]) == 5, "it exists"
    assert run(["inspect", str(model), "--chart", str(tmp_path / "memory.gif")]) == 2
    assert run(["inspect", str(DIGITS), "--chart", str(tmp_path / "x.svg")]) == 2, "not packed"
    capsys.readouterr()


def test_many_steps_share_rows() -> None:
    steps = [{"step": i, "live_bytes": i % 50} for i in range(1000)]
    rows = timeline({"steps": steps, "arena_bytes": 64, "peak_step": 49})
    assert len(rows) <= ROWS and all(r["live"] == 49 for r in rows)
    assert [r["steps"] for r in rows if "peak" in r["chart"]] == ["0-49"]
    assert timeline({"steps": [], "arena_bytes": 0, "peak_step": None}) == []
