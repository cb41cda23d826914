"""Names that engines had in earlier versions, which files still contain: plans, locks, tuning databases, bundles.

Readers of files and of arguments resolve the names here. Writers and listings know the current names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ENGINE_RENAMES: dict[str, str] = {
    "cuda_ahead": "cuda_materialized_prologue",
    "cuda_apart": "cuda_space_to_depth",
    "cuda_apart_float": "cuda_space_to_depth_bf16x3",
    "cuda_apart_tf32": "cuda_space_to_depth_tf32",
    "cuda_direct_stem_float": "cuda_direct_stem_fp32",
    "cuda_hopper_across": "cuda_hopper_dgrad_tf32",
    "cuda_hopper_float": "cuda_hopper_bf16x3",
    "cuda_hopper_float_wgrad": "cuda_hopper_bf16x3_wgrad",
    "cuda_hopper_float_wgrad_tf32": "cuda_hopper_bf16x2_wgrad",
    "cuda_hopper_held": "cuda_hopper_weight_stationary",
    "cuda_hopper_integer_wgrad": "cuda_hopper_int_limbs_wgrad",
    "cuda_hopper_integers": "cuda_hopper_int_limbs",
    "cuda_joined": "cuda_group_packing",
    "cuda_matmul_few": "cuda_matmul_skinny",
    "cuda_movement": "cuda_data_movement",
    "cuda_paired": "cuda_stride_fold",
    "cuda_patches": "cuda_im2col",
    "cuda_rnn_resident": "cuda_rnn_persistent",
    "cuda_rnn_resident_backward_data": "cuda_rnn_persistent_backward_data",
    "cuda_turned": "cuda_layout_transform",
    "cuda_widened": "cuda_fp8_upcast",
}

_EARLIER_NAMES = {new: old for old, new in ENGINE_RENAMES.items()}


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Whole names. The name of a configuration continues with its knobs: ``NAME_k40=128``."""
    return re.compile(r"(?<!\w)(?:" + "|".join(sorted(names, key=len, reverse=True)) + r")(?=_k\d+=|\W|$)")


_OLD, _NEW = _pattern(ENGINE_RENAMES), _pattern(_EARLIER_NAMES)


def current_name(name: str) -> str:
    """The current name of an engine; other strings come back as they are."""
    return ENGINE_RENAMES.get(name, name)


def current_names(text: str) -> str:
    """``text`` (a rule id, a configuration's name) with every earlier engine name replaced by the current one."""
    return _OLD.sub(lambda match: ENGINE_RENAMES[match[0]], text)


def matches_name(word: str, name: str) -> bool:
    """Whether the name of an engine or a configuration contains ``word``, or its earlier name does."""
    return word in name or word in _NEW.sub(lambda match: _EARLIER_NAMES[match[0]], name)
