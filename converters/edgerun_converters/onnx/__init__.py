"""The ONNX importer: every opset from 7 on, lowered to the core ops."""
