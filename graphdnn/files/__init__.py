"""Graphs, plans and devices as files: data only, checked on the way in, one error class for anything malformed."""

from graphdnn.files.graph_files import (
    GRAPH_FORMAT,
    KNOWN_OPERATIONS,
    graph_from_dict,
    graph_from_json,
    graph_to_dict,
    graph_to_json,
)
from graphdnn.files.json_documents import (
    CONTENT,
    LARGEST_FILE,
    NEWER,
    TOO_LARGE,
    VERSION,
    digest_of,
    guarded,
    malformed,
    parse_document,
    parse_json,
    placed,
)
from graphdnn.files.plan_files import (
    PLAN_FORMAT,
    choices_to_json,
    config_from_dict,
    config_from_json,
    plan_from_json,
    plan_to_json,
    refusals_of,
    spec_from_json,
    spec_to_json,
)
from graphdnn.files.spec_fields import decoded, fields_of, plain

__all__ = [
    "CONTENT", "GRAPH_FORMAT", "KNOWN_OPERATIONS", "LARGEST_FILE", "NEWER", "PLAN_FORMAT", "TOO_LARGE", "VERSION",
    "choices_to_json", "config_from_dict", "config_from_json", "decoded", "digest_of", "fields_of", "graph_from_dict",
    "graph_from_json", "graph_to_dict", "graph_to_json", "guarded", "malformed", "parse_document", "parse_json",
    "placed", "plain", "plan_from_json", "plan_to_json", "refusals_of", "spec_from_json", "spec_to_json",
]  # fmt: skip
