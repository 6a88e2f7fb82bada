"""Lowering of core ops to native kernels, one module per family; see `edgerun.backends.native.lowering`."""
