"""Properties of every core op on random legal nodes: shape rule, NumPy kernel, native kernel and onnxruntime agree."""
