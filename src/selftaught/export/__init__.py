"""A finished model as one file for other programs: ONNX, or a program of torch.export."""

from selftaught.export.exporting import Exported, check_target, export

__all__ = ["Exported", "check_target", "export"]
