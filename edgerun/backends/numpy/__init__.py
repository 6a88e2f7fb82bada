"""The reference backend: one NumPy function per core op, and an executor that calls them in order."""
