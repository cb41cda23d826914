"""RNN descriptors and the plans of the dynamic persistent algorithm."""

from __future__ import annotations

from typing import Any

from graphdnn.v6.descriptor_checks import entries
from graphdnn.v6.descriptor_values import DESCRIPTORS, RNN, Descriptor, Handle, PersistentPlan, RNNDescriptor
from graphdnn.v6.enums import cudnnDataType_t, cudnnMathType_t, cudnnRNNAlgo_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.recurrent_descriptors import check_precision, too_old
from graphdnn.v6.recurrent_rules import PERSISTENT, PLAN_ALGO
from graphdnn.v6.registry import implements

_STANDARD = cudnnRNNAlgo_t.CUDNN_RNN_ALGO_STANDARD
_DYNAMIC = cudnnRNNAlgo_t.CUDNN_RNN_ALGO_PERSIST_DYNAMIC


@implements("cudnnSetRNNDescriptor")
def set_descriptor(desc: Descriptor, hidden: int, layers: int, *settings: Any) -> None:
    """The form of 5.1: the standard algorithm. With ten arguments the name has the form of ``_v6``, as in 7.0."""
    *others, data_type = settings
    _keep("cudnnSetRNNDescriptor", desc, RNN._make((hidden, layers, *others, _STANDARD, data_type)))


@implements("cudnnSetRNNDescriptor_v6")
def set_descriptor_v6(handle: Handle, desc: Descriptor, *settings: Any) -> None:
    where, rnn = "cudnnSetRNNDescriptor_v6", RNN._make(settings)
    if rnn.algo is not _STANDARD and too_old(handle.device):
        reason = "older devices cannot wait for all of their blocks"
        expected = "compute capability 6.0 or later"
        raise CudnnError(PERSISTENT.reject(where, "algo", rnn.algo.name, expected=expected, reason=reason))
    _keep(where, desc, rnn)


def _keep(where: str, desc: Descriptor, rnn: RNN) -> None:
    entries(where, 1, hiddenSize=rnn.hidden, numLayers=rnn.layers)
    desc.value = rnn


@implements("cudnnGetRNNDescriptor")
def get_descriptor(handle: Handle, desc: Descriptor) -> tuple[Any, ...]:
    return tuple(desc.value)


@implements("cudnnSetRNNMatrixMathType")
def set_math_type(desc: Descriptor, math: cudnnMathType_t) -> None:
    """Kept; matrices are multiplied in the arithmetic of the network either way."""
    assert isinstance(desc, RNNDescriptor)
    desc.math_type = math


@implements("cudnnCreatePersistentRNNPlan")
def create_plan(desc: Descriptor, batch: int, data_type: cudnnDataType_t) -> Descriptor:
    """For one batch size. Nothing is compiled on the host."""
    where = "cudnnCreatePersistentRNNPlan"
    entries(where, 1, minibatch=batch)
    check_precision(where, "plan", desc.value, data_type)
    plan = DESCRIPTORS["PersistentRNNPlan"]()
    plan.value = PersistentPlan(batch, data_type)
    return plan


@implements("cudnnSetPersistentRNNPlan")
def set_plan(desc: Descriptor, plan: Descriptor) -> None:
    assert isinstance(desc, RNNDescriptor)
    if desc.value.algo is not _DYNAMIC:
        raise CudnnError(PLAN_ALGO.reject("cudnnSetPersistentRNNPlan", "rnnDesc.algo", desc.value.algo.name))
    desc.plan = plan
