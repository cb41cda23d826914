"""Names that engines had in earlier versions, which files still contain: plans, locks, tuning databases, bundles.

Readers of files resolve the names here. Writers know the current names only.
"""

from __future__ import annotations

import re

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

_OLD = re.compile(r"(?<!\w)(?:" + "|".join(sorted(ENGINE_RENAMES, key=len, reverse=True)) + r")(?!\w)")


def current_name(name: str) -> str:
    """The current name of an engine; other strings come back as they are."""
    return ENGINE_RENAMES.get(name, name)


def current_names(text: str) -> str:
    """``text`` (a rule id, a configuration's name) with every earlier engine name replaced by the current one."""
    return _OLD.sub(lambda match: ENGINE_RENAMES[match[0]], text)
