"""Real models with reference outputs, from the folder that EDGERUN_CORPUS names (see `corpus`)."""
