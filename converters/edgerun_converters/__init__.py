"""Host side: from ONNX files and checkpoints to graphs, and the passes that improve graphs."""
