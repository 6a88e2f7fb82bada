"""Lowering of ONNX operators to core ops, one module per family; see `edgerun_converters.onnx.builder`."""
