"""The native backend: graphs compiled to plans that the C runtime executes."""
