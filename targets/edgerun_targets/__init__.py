"""Board and architecture profiles."""
