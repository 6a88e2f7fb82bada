"""The official ONNX backend tests as they ship with the onnx package, judged against a ledger of expectations."""
