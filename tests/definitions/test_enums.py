"""Every enum against the facts of the cuDNN 9.28 headers: exact C names, exact integers, aliases kept."""

from __future__ import annotations

import inspect
import json

import pytest
from repository import DATA

from graphdnn import attribute_names, enums
from graphdnn.enums import CEnum, DataType, c_members

FACTS = json.loads((DATA / "cudnn_enums.json").read_text())["enums"]
ENUMS = {
    cls._c_type_: cls
    for module in (enums, attribute_names)
    for _, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, CEnum) and cls is not CEnum
}


def test_every_fact_has_an_enum() -> None:
    assert set(FACTS) == set(ENUMS)


@pytest.mark.parametrize("c_type", FACTS)
def test_names_and_integers(c_type: str) -> None:
    ours = {name: int(member) for name, member in c_members(ENUMS[c_type]).items()}
    own = {name: ours.pop(name) for name in list(ours) if name.startswith("GRAPHDNN_")}
    if c_type == "cudnnDataType_t":
        assert own, "members that cuDNN does not have are in _OWN_C_NAMES of enums.py"
    for name, number in own.items():
        assert number >= 10000, f"{name}: a member that cuDNN does not have takes a number of 10000 or more"
    assert ours == FACTS[c_type], "a member that cuDNN does not have needs a GRAPHDNN_ name in _OWN_C_NAMES (enums.py)"


@pytest.mark.parametrize("c_type", FACTS)
def test_round_trip_by_c_name(c_type: str) -> None:
    for name, member in c_members(ENUMS[c_type]).items():
        assert ENUMS[c_type].from_c_name(name) is member
        assert ENUMS[c_type](int(member)) is member


def test_c_name_of_an_alias_is_the_first_name() -> None:
    assert enums.Status.ARCH_MISMATCH.c_name == "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"
    assert DataType.INT16.c_name == "GRAPHDNN_DATA_INT16"


def test_unknown_c_name() -> None:
    with pytest.raises(KeyError):
        DataType.from_c_name("CUDNN_DATA_INT16")
