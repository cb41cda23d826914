"""DEVICEPROP, and which device a graph, an engine and a plan are for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import InstanceOf

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec
from graphdnn.backend.handle import Handle
from graphdnn.backend.rules import (
    DEVICE_CONFLICT,
    DEVICEPROP_ID,
    DEVICEPROP_JSON,
    DEVICEPROP_SOURCE,
    SHARED_MEMORY_LIMIT,
    SM_COUNT_TARGET,
)
from graphdnn.cuda.device_query import present_device
from graphdnn.cuda.driver_api import available
from graphdnn.device.profiles import DeviceSpec, device_from_json
from graphdnn.device_selection import device_spec
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType
from graphdnn.errors import BadParam, Rejection, raise_if
from graphdnn.spec import Int64, attr, attribute_label


class DevicePropSettings(DescriptorSpec):
    """A device by ordinal, by handle or as data."""

    descriptor = DescriptorType.DEVICEPROP

    device_id: Annotated[Int64 | None, attr(A.DEVICEPROP_DEVICE_ID, T.INT32, "a device ordinal", "0")] = None
    handle: Annotated[
        InstanceOf[Handle] | None, attr(A.DEVICEPROP_HANDLE, T.HANDLE, "a handle", "what cudnnCreate returned")
    ] = None
    json_text: Annotated[
        str | None,
        attr(A.DEVICEPROP_JSON_REPRESENTATION, T.CHAR, "JSON of a device", "json of DeviceSpec.to_json()", (1, MANY)),
    ] = None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProp:
    """Content of a finalized DEVICEPROP."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.DEVICEPROP
    settings: DevicePropSettings
    device: DeviceSpec

    @classmethod
    def of(cls, device: DeviceSpec) -> DeviceProp:
        return cls(DevicePropSettings(json_text=device_text(device)), device)


def device_text(device: DeviceSpec) -> str:
    return json.dumps(device.to_json())


def build_device_prop(settings: DevicePropSettings) -> DeviceProp:
    sources = [f for f in ("device_id", "handle", "json_text") if getattr(settings, f) is not None]
    if len(sources) != 1:
        raise BadParam(DEVICEPROP_SOURCE.reject("DEVICEPROP", _label(*sources), ", ".join(sources) or "none"))
    if settings.handle is not None:
        return DeviceProp(settings, settings.handle.device)
    if settings.json_text is not None:
        return DeviceProp(settings, device_from_json(_parsed(settings.json_text)))
    why = available()
    if not why:
        return DeviceProp(settings, present_device(settings.device_id))
    if settings.device_id != 0:
        raise_if([DEVICEPROP_ID.reject("DEVICEPROP", _label("device_id"), settings.device_id, why=why)])
    return DeviceProp(settings, device_spec())


def _label(*fields: str) -> str:
    labels = [attribute_label(DevicePropSettings, f) for f in fields or DevicePropSettings.model_fields]
    return ", ".join(labels)


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
        detail = f"this is a {type(data).__name__}"
    except (ValueError, RecursionError) as error:
        data, detail = None, str(error)
    if not isinstance(data, dict):
        raise BadParam(DEVICEPROP_JSON.reject("DEVICEPROP", _label("json_text"), text, detail=detail))
    return data


def named_device(
    where: str, handle: Handle | None, prop: DeviceProp | None, settled: DeviceSpec | None = None
) -> DeviceSpec | None:
    """The one device that ``prop``, ``handle`` and an earlier decision name, None when nobody names one."""
    named = [("CUDNN_ATTR_..._DEVICEPROP", prop.device)] if prop is not None else []
    named += [("CUDNN_ATTR_..._HANDLE", handle.device)] if handle is not None else []
    named += [("the configuration", settled)] if settled is not None else []
    for source, device in named[1:]:
        if device != named[0][1]:
            expected = f"{named[0][0]} and {source} to agree on {device.name}"
            raise BadParam(DEVICE_CONFLICT.reject(where, "device", named[0][1].name, expected=expected))
    return named[0][1] if named else None


def limited(device: DeviceSpec, where: str, sm_count_target: int, shared_memory_limit: int) -> DeviceSpec:
    """The part of a device that an engine may use. Raises when the device does not have it, or cannot be cut."""
    raise_if(_limit_problems(device, where, sm_count_target, shared_memory_limit))
    if sm_count_target:
        share = sm_count_target / device.sm_count
        rates = MappingProxyType({kind: rate * share for kind, rate in device.rates.items()})
        device = replace(device, sm_count=sm_count_target, rates=rates)
    return replace(device, shared_memory=shared_memory_limit) if shared_memory_limit else device


def _limit_problems(device: DeviceSpec, where: str, sm_count: int, shared: int) -> Iterator[Rejection]:
    rows = (
        (SM_COUNT_TARGET, "SM_COUNT_TARGET", sm_count, device.sm_count, "multiprocessors"),
        (SHARED_MEMORY_LIMIT, "SHARED_MEMORY_LIMIT", shared, device.shared_memory, "bytes"),
    )
    for rule, name, value, most, unit in rows:
        label = f"CUDNN_ATTR_{where}_{name}"
        if value and device.kind == "cpu":
            reason = "NumPy and its BLAS share out the processor themselves"
            yield rule.reject(where, label, value, expected="0 on a processor", reason=reason)
        elif not 0 <= value <= most:
            yield rule.reject(where, label, value, expected=f"0 to {most} {unit}", reason=f"{device.name} has {most}")
