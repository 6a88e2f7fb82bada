"""Graph-to-graph improvements. `optimize` runs the pipeline; every pass keeps the values within rounding."""

from edgerun_converters.passes.pipeline import optimize

__all__ = ["optimize"]
