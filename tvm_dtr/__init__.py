"""Train ONNX models with TVM under a hard memory budget."""
