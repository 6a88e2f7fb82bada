"""What the GPU backends share: WGSL kernels with baked shapes, and the lowering of graphs to lists of dispatches."""
