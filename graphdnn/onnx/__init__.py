"""ONNX models on graphdnn's plans: ``load`` reads a model, ``Model.run`` runs it.

A model becomes graphs: constants are folded, shapes inferred, and every connected set of nodes that the table of
operators serves is one ``graphdnn.Graph``. Nodes without a lowering are refused, all at once, unless the caller asks
for ONNX's reference evaluator. The module needs the package onnx (``pip install 'graphdnn[onnx]'``).
"""

from graphdnn.onnx.model import Model, ValueInfo, load
from graphdnn.onnx.session import InferenceSession, as_onnxruntime

__all__ = ["InferenceSession", "Model", "ValueInfo", "as_onnxruntime", "load"]
