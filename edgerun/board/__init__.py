"""The program inside a packed file of engine "python": the words, flags and JSON of the native launcher."""
