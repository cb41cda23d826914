"""Extension: an operation that the v8 header does not have. Faces other than the v8 one make them.

It is an operation like any other: ports, shape rule, constraints, semantics, a fusion rule. What it lacks is a
descriptor with attributes, so its ports are marked with ``ExtensionPort``.
"""

from graphdnn.operations.base import Operation


class Extension(Operation):
    """Base of the extension operations, which ``EXTENSIONS`` lists."""

    @classmethod
    def kind(cls) -> str:
        """``GRID_SAMPLE`` and the like, for errors."""
        return cls.tag.upper()

    @property
    def scratch_bytes(self) -> int:
        """Memory that the host engine works in, beside its results."""
        return 0
