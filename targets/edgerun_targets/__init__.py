"""Board and architecture profiles: one TOML file each, named like the target."""

from edgerun_targets.loader import Target, load, load_file, names

__all__ = ["Target", "load", "load_file", "names"]
