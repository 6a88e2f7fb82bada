"""One module per model family; each builds a graph from a configuration and named tensors."""
