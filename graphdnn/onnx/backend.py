"""``onnx.backend.base.Backend`` on graphdnn: ``prepare(model, "CPU")`` gives an object whose ``run`` takes inputs in
the order of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphdnn.device_selection import device_spec
from graphdnn.errors import GraphdnnError
from graphdnn.onnx.model import Model, load
from graphdnn.onnx.package import onnx_package

try:
    from onnx.backend.base import Backend, BackendRep
except ImportError:  # the module is importable without the package, and prepare() says what is missing
    Backend, BackendRep = object, object


class GraphdnnRep(BackendRep):  # type: ignore[misc]
    """A model that is ready to run.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: Arrays in the order of the model's inputs, or by name.
            kwargs: Accepted and not read, as the interface demands.

        Returns:
            The outputs in the order of the model.

        Raises:
            BadParam: An input is wrong.
            NotSupported: Nodes are not served.
        """
        if not isinstance(inputs, Mapping):
            given = inputs if isinstance(inputs, Sequence) else [inputs]
            names = [i.name for i in (self.model.inputs if len(given) <= len(self.model.inputs) else self._all())]
            inputs = dict(zip(names, given, strict=False))
        return tuple(self.model.run(inputs).values())

    def _all(self) -> list[Any]:
        return list(self.model.proto.graph.input)


class GraphdnnBackend(Backend):  # type: ignore[misc]
    """The backend: "CPU" is the host, "CUDA" the device of the driver."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> GraphdnnRep:
        """Make a model ready to run.

        Args:
            model: An onnx.ModelProto.
            device: ``"CPU"`` or ``"CUDA"``.
            kwargs: ``fallback``, as ``load`` takes it.

        Returns:
            The model.

        Raises:
            MalformedFile: The model is invalid.
            NotSupported: Nodes are not served.
        """
        place = "cpu" if device.split(":", maxsplit=1)[0] == "CPU" else "cuda"
        return GraphdnnRep(load(model, device=place, fallback=kwargs.get("fallback")))

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node as a model.

        Args:
            node: An onnx.NodeProto.
            inputs: Arrays in the order of its inputs.
            device: ``"CPU"`` or ``"CUDA"``.
            outputs_info: Not read; types and shapes are inferred.
            kwargs: ``opset_version``, and ``fallback`` as ``load`` takes it.

        Returns:
            The outputs.

        Raises:
            NotSupported: The node is not served.
        """
        onnx = onnx_package()
        helper = onnx.helper
        names = [name for name in node.input if name]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, inputs, strict=True)
        ]
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        opsets = [helper.make_opsetid("", version)]
        types = {i.name: i.type for i in infos}
        found = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(node.op_type, version, node.domain), node, types, opset_imports=opsets
        )
        results = [helper.make_value_info(name, found[name]) for name in node.output if name]
        graph = helper.make_graph([node], "node", infos, results)
        return cls.prepare(helper.make_model(graph, opset_imports=opsets), device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether plans for a device can be run here.

        Args:
            device: ``"CPU"`` or ``"CUDA"``.

        Returns:
            True for the host, and for CUDA if a device is present.
        """
        if device.split(":", maxsplit=1)[0] == "CPU":
            return True
        try:
            return device_spec("cuda").kind == "cuda"
        except GraphdnnError:
            return False


prepare = GraphdnnBackend.prepare
run_node = GraphdnnBackend.run_node
run_model = getattr(GraphdnnBackend, "run_model", None)
supports_device = GraphdnnBackend.supports_device
