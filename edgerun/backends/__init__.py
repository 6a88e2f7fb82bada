"""What runs a graph: numpy (the reference), native (the C runtime), wgpu, cuda."""
