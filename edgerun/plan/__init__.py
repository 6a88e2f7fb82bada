"""The plan: one model compiled for one architecture, in bytes that the C runtime reads in place.

docs/plan-format.md is the specification.
"""

from edgerun.plan.model import Plan, PlanNode, PlanTensor, Space, SymbolBounds, SymbolPlace, Weight
from edgerun.plan.reader import PlanReader, read_manifest
from edgerun.plan.writer import write

__all__ = [
    "Plan",
    "PlanNode",
    "PlanReader",
    "PlanTensor",
    "Space",
    "SymbolBounds",
    "SymbolPlace",
    "Weight",
    "read_manifest",
    "write",
]
