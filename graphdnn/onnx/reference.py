"""Nodes run by ONNX's own reference evaluator: constants, and what has no engine where the caller asks for it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from graphdnn.errors import ExecutionFailed
from graphdnn.onnx.node import Node
from graphdnn.onnx.package import onnx_package
from graphdnn.onnx.rules import REFERENCE


class ReferenceNodes:
    """Nodes that run one after another on host arrays.

    Args:
        nodes: The nodes in order.
        inputs: The names of the values that they read.
        outputs: The names of the values that are read later.
    """

    def __init__(self, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]) -> None:
        onnx = onnx_package()
        self.nodes, self.inputs, self.outputs = tuple(nodes), tuple(inputs), tuple(outputs)
        opsets = {domain: version for node in nodes for domain, version in node.opsets.items()}
        infos = [onnx.helper.make_empty_tensor_value_info(name) for name in inputs]
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = onnx.helper.make_graph([node.proto for node in nodes], "reference", infos, results)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid(*item) for item in opsets.items()]
        )
        try:
            self._evaluator = onnx.reference.ReferenceEvaluator(model)
        except Exception as error:  # an operator that it does not know, in a class of its own
            raise self._failed(error) from None

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name.

        Raises:
            ExecutionFailed: The evaluator raised an error.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self._evaluator.run(None, {name: feeds[name] for name in self.inputs})
        except Exception as error:  # the evaluator raises errors of every class
            raise self._failed(error) from None
        return dict(zip(self.outputs, found, strict=True))

    def _failed(self, error: Exception) -> ExecutionFailed:
        detail = f"{type(error).__name__}: {error}"
        return ExecutionFailed(REFERENCE.reject(self.nodes[0].where, "operands", list(self.inputs), detail=detail))
