"""Rules: every reason for which a model, a node or an input is refused here."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.rules import Rule

NO_ONNX = Rule(
    id="onnx.package",
    expected="the Python package onnx",
    reason="models are parsed, checked and inferred by ONNX's own package: {detail}",
    fix="pip install 'graphdnn[onnx]'",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)
NOT_A_MODEL = Rule(
    id="onnx.model.content",
    expected="a valid ONNX model",
    reason="{detail}",
    fix="export the model again; onnx.checker.check_model says more",
)
NO_FILE = Rule(
    id="onnx.model.path",
    expected="a path, bytes or an onnx.ModelProto",
    reason="{detail}",
    fix="pass the path of a .onnx file",
)
EXTERNAL_DATA = Rule(
    id="onnx.model.external_data",
    expected="a file inside the model's folder with the bytes of the tensor",
    reason="{detail}; no file outside of the model's folder is read",
    fix="put the data file beside the model, and save the model with a relative location",
)
OPERATOR = Rule(
    id="onnx.operator",
    expected="an operator of docs/onnx.md",
    reason="no lowering is written for this operator{detail}",
    fix="pass fallback='reference', or replace the operator",
    status=Status.NOT_SUPPORTED,
)
NEED = Rule(
    id="onnx.operator.need",
    expected="{expected}",
    reason="{reason}",
    fix="{fix}",
    status=Status.NOT_SUPPORTED,
)
ELEMENT_TYPE = Rule(
    id="onnx.element_type",
    expected="a tensor of {served}",
    reason="no engine reads or writes this type",
    fix="insert a Cast, or pass fallback='reference'",
    status=Status.NOT_SUPPORTED_DATA_TYPE,
)
RANK = Rule(
    id="onnx.rank",
    expected="at most {most} axes",
    reason="tensors of the engines have at most {most} axes",
    fix="merge axes by a Reshape, or pass fallback='reference'",
    status=Status.NOT_SUPPORTED_SHAPE,
)
SHAPE = Rule(
    id="onnx.shape.unknown",
    expected="a shape that follows from the shapes of the model's inputs",
    reason="{detail}",
    fix="pass fallback='reference', or export the model with static shapes",
    status=Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
)
SIZE = Rule(
    id="onnx.shape.size",
    expected="at most {most} bytes",
    reason="the value alone is larger than the memory of this machine",
    fix="correct the shapes of the model",
    status=Status.NOT_SUPPORTED_SHAPE,
)
INFERENCE = Rule(
    id="onnx.shape.inference",
    expected="operands that fit the operator",
    reason="ONNX's shape inference refuses the node: {detail}",
    fix="correct the model or the shapes of its inputs",
    status=Status.BAD_PARAM_SHAPE_MISMATCH,
)
VALUE = Rule(
    id="onnx.value.unknown",
    expected="a constant, or a small input of the model",
    reason="{detail}, so a plan has to know the value when it is built",
    fix="make the operand an initializer, or pass fallback='reference'",
    status=Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
)
FOLDING = Rule(
    id="onnx.constant",
    expected="constant operands that ONNX's reference evaluator computes with",
    reason="{detail}",
    fix="correct the constants of the model",
)
INPUT_NAME = Rule(
    id="onnx.input.name",
    expected="{expected}",
    reason="an array is bound to each input of the model by its name",
    fix="model.inputs lists names, shapes and types",
)
INPUT_KIND = Rule(
    id="onnx.input.kind",
    expected="a tensor",
    reason="no engine reads sequences, optional values, maps or sparse tensors",
    fix="pass fallback='reference', or export the model with tensors",
    status=Status.NOT_SUPPORTED,
)
INPUT_TYPE = Rule(
    id="onnx.input.type",
    expected="{expected}",
    reason="arrays are not converted in silence",
    fix="convert the array, for example with numpy.asarray(x, dtype)",
    status=Status.BAD_PARAM_ATTRIBUTE_TYPE,
)
INPUT_SHAPE = Rule(
    id="onnx.input.shape",
    expected="{expected}",
    reason="the model declares this shape; a name stands for any extent, and the same name for the same extent",
    fix="reshape the array, or export the model with other shapes",
    status=Status.BAD_PARAM_SHAPE_MISMATCH,
)
OUTPUT_NAME = Rule(
    id="onnx.output.name",
    expected="{expected}",
    reason="an output is named as in the model",
    fix="model.outputs lists the names",
)
FALLBACK = Rule(
    id="onnx.fallback",
    expected="None or 'reference'",
    reason="nodes without an engine are refused, or run by ONNX's reference evaluator where the caller asks for it",
    fix="pass fallback='reference'",
)
REFERENCE = Rule(
    id="onnx.reference.failed",
    expected="operands that ONNX's reference evaluator computes with",
    reason="{detail}",
    fix="correct the inputs of the node, or replace the operator",
    status=Status.EXECUTION_FAILED,
)
PROVIDER = Rule(
    id="onnx.provider",
    expected="{expected}",
    reason="the provider decides the device of the plans, and no other one is known",
    fix="name one of them, or leave providers out",
)
NODE = Rule(
    id="onnx.node.attributes",
    expected="attributes that the operator defines, and that fit each other and the operands",
    reason="the node cannot be read: {detail}",
    fix="correct the attributes of the node",
)
