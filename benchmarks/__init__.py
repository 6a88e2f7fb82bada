"""Speed of edgerun beside other runtimes; see docs/benchmarks.md for the method."""
