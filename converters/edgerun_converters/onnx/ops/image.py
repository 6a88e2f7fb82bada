"""ImageDecoder."""

from __future__ import annotations

from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("ImageDecoder")
def image_decoder(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("image_decoder", [n.input(0)], pixel_format=n.attr("pixel_format", "RGB")))
