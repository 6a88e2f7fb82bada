"""The core ops: attributes, checks, shape rules and costs, one module per family. See `registry`."""
