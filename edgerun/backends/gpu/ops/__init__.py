"""How each core op becomes dispatches, a module per family."""
