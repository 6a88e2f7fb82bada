"""Text generation: tokenizers, samplers, and the loop from prompt to text. Imports NumPy only."""
