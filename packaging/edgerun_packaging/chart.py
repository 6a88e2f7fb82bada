"""The arena over the steps of a run as a drawing: each tensor is a rectangle, as wide as it lives and as high as it is
large.

The scratch of nodes is left out of the drawing but counts in the line of live bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from edgerun.errors import BackendUnavailable, UsageError
from edgerun.files import atomic_write
from edgerun.report import size_text

WIDTH, HEIGHT, LEFT, TOP = 960, 480, 80, 40
"""Of the plot, and the room for its labels, in pixels."""
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_PEAK, _INK = "#d62728", "#333333"


def draw(report: dict[str, Any], path: Path, title: str, *, force: bool = False) -> None:
    """Write the drawing of an `arena_report` to `path`, SVG or PNG by its ending.

    Raises UsageError for another ending, BackendUnavailable for PNG without Pillow, InputOutputError.
    """
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise UsageError(f"{path.name} is neither .svg nor .png")
    data = svg(report, title).encode() if kind == ".svg" else png(report, title)
    with atomic_write(path, force=force) as file:
        file.write(data)


def _scale(report: dict[str, Any]) -> tuple[float, float]:
    """Pixels a step, pixels a byte."""
    return WIDTH / max(len(report["steps"]), 1), HEIGHT / max(report["arena_bytes"], 1)


def _boxes(report: dict[str, Any]) -> list[tuple[float, float, float, float, str, str]]:
    """(x, y, width, height, colour, label) of each tensor; offset 0 is at the bottom."""
    across, up = _scale(report)
    boxes = []
    for i, t in enumerate(report["tensors"]):
        x, width = LEFT + t["first"] * across, (t["last"] - t["first"] + 1) * across
        height = t["bytes"] * up
        y = TOP + HEIGHT - t["offset"] * up - height
        label = f"{t['tensor']}: {size_text(t['bytes'])}, steps {t['first']} to {t['last']}"
        boxes.append((x, y, width, height, COLOURS[i % len(COLOURS)], label))
    return boxes


def _line(report: dict[str, Any]) -> list[tuple[float, float]]:
    """Live bytes as a staircase."""
    across, up = _scale(report)
    points = []
    for i, step in enumerate(report["steps"]):
        y = TOP + HEIGHT - step["live_bytes"] * up
        points += [(LEFT + i * across, y), (LEFT + (i + 1) * across, y)]
    return points


def _labels(report: dict[str, Any], title: str) -> list[tuple[float, float, str]]:
    """(x, y of the baseline, text)."""
    arena, bound = report["arena_bytes"], report["lower_bound_bytes"]
    last = max(len(report["steps"]) - 1, 0)
    text = f"{title}: arena {size_text(arena)}, lower bound {size_text(bound)} (gap {report['gap_percent']:.1f} %)"
    return [
        (LEFT, TOP - 16, text),
        (4, TOP + 10, size_text(arena)),
        (4, TOP + HEIGHT, "0 B"),
        (LEFT, TOP + HEIGHT + 18, "step 0"),
        (LEFT + WIDTH - 60, TOP + HEIGHT + 18, f"step {last}"),
    ]


def svg(report: dict[str, Any], title: str) -> str:
    """The drawing as SVG; tensors tell their names when pointed at."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 30}" '
        f'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for x, y, w, h, colour, label in _boxes(report):
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" fill="{colour}" fill-opacity="0.8" '
            f'stroke="white" stroke-width="0.5"><title>{escape(label)}</title></rect>'
        )
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in _line(report))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{_PEAK}" stroke-width="1.5"/>')
    parts += [f'<text x="{x}" y="{y}" fill="{_INK}">{escape(text)}</text>' for x, y, text in _labels(report, title)]
    return "\n".join([*parts, "</svg>\n"])


def png(report: dict[str, Any], title: str) -> bytes:
    """The drawing as PNG. Raises BackendUnavailable when Pillow is not installed."""
    import io

    try:
        from PIL import Image, ImageDraw
    except ImportError as e:
        raise BackendUnavailable("PNG needs Pillow", hint="pip install 'edgerun[images]', or draw .svg") from e
    image = Image.new("RGB", (LEFT + WIDTH + 20, TOP + HEIGHT + 30), "white")
    pen = ImageDraw.Draw(image)
    for x, y, w, h, colour, _ in _boxes(report):
        pen.rectangle((x, y, x + w, y + h), fill=colour, outline="white")
    if report["steps"]:
        pen.line(_line(report), fill=_PEAK, width=2)
    for x, y, text in _labels(report, title):
        pen.text((x, y - 11), text, fill=_INK)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
