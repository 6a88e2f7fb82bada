"""Memory planning: which tensors share memory, and where each lives in the arena."""

from edgerun.planner.arena import ALGORITHMS, Block, lower_bound, place
from edgerun.planner.plan import MemoryPlan, TensorPlace, plan_memory
from edgerun.planner.storage import Location, Storages, find_storages

__all__ = [
    "ALGORITHMS",
    "Block",
    "Location",
    "MemoryPlan",
    "Storages",
    "TensorPlace",
    "find_storages",
    "lower_bound",
    "place",
    "plan_memory",
]
