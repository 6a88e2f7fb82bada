"""The CUDA backend: the WGSL kernels as CUDA C++, run through NVIDIA's driver library alone."""
