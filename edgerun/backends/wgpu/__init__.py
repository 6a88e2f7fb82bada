"""The wgpu backend: WGSL kernels on Vulkan, Metal or Direct3D 12, through the PyPI package `wgpu`."""
