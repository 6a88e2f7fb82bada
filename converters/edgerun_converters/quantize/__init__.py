"""Smaller and faster weights: 8 and 4 bits, with the loss measured on data.

`quantize` turns a float graph into one of integer layers (static, dynamic) or of weights of few bits, leaves out the
layers that would lose too much, and says what it did.
"""

from edgerun_converters.quantize.drive import MODES, Options, Result, bound_to, quantize
from edgerun_converters.quantize.metrics import METRICS

__all__ = ["METRICS", "MODES", "Options", "Result", "bound_to", "quantize"]
