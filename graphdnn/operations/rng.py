"""Random numbers: Philox4x32-10, counter based, the same numbers from every engine."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import AtLeast, Each, Equals, InRange, OneOf, Present
from graphdnn.dtypes import INTEGERS
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, RngDistribution, Status
from graphdnn.operations.base import Extents, Operation, output_constraints
from graphdnn.rules import Constraint
from graphdnn.spec import Float, Int64, Spec, attr, port
from graphdnn.tensors import TensorSpec

_PARAMETERS = {
    RngDistribution.NORMAL: ("mean", "standard_deviation"),
    RngDistribution.UNIFORM: ("minimum", "maximum"),
    RngDistribution.BERNOULLI: ("probability",),
}


def _missing(spec: "RngSpec") -> list[str]:
    return [name for name in _PARAMETERS[spec.distribution] if getattr(spec, name) is None]


def _unused(spec: "RngSpec") -> list[str]:
    every = {name for names in _PARAMETERS.values() for name in names}
    return sorted(n for n in every - set(_PARAMETERS[spec.distribution]) if getattr(spec, n) is not None)


class RngSpec(Spec):
    """A distribution and its parameters."""

    descriptor = DescriptorType.RNG
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="rng.parameter.missing",
                attribute=lambda r: ", ".join(_missing(r)),
                look=lambda r: None,
                check=Present(),
                when=lambda r: bool(_missing(r)),
                reason="the distribution needs this parameter",
                fix="set it",
            ),
            Constraint(
                id="rng.parameter.unused",
                attribute=lambda r: ", ".join(_unused(r)),
                look=lambda r: tuple(getattr(r, name) for name in _unused(r)),
                check=Equals("only the parameters of the distribution"),
                when=lambda r: bool(_unused(r)),
                reason="the distribution does not read it, and the library ignores no input",
                fix="leave it unset",
            ),
        ),
        (
            Constraint(
                id="rng.standard_deviation",
                attribute="standard_deviation",
                look=lambda r: r.standard_deviation,
                check=AtLeast(0.0),
                when=lambda r: r.distribution is RngDistribution.NORMAL,
                reason="a standard deviation is not negative",
                fix="use 1.0",
            ),
            Constraint(
                id="rng.range",
                attribute="maximum",
                look=lambda r: r.maximum,
                check=lambda r: AtLeast(r.minimum),
                when=lambda r: r.distribution is RngDistribution.UNIFORM,
                reason="the range is minimum to maximum",
                fix="exchange the two",
            ),
            Constraint(
                id="rng.probability",
                attribute="probability",
                look=lambda r: r.probability,
                check=InRange(0.0, 1.0),
                when=lambda r: r.distribution is RngDistribution.BERNOULLI,
                reason="it is the probability that an element is 1",
                fix="use a number from 0 to 1; dropout keeps with 1 - rate",
            ),
        ),
    )

    distribution: Annotated[
        RngDistribution, attr(A.RNG_DISTRIBUTION, T.RNG_DISTRIBUTION, "an RngDistribution", "BERNOULLI for dropout")
    ] = RngDistribution.BERNOULLI
    mean: Annotated[Float | None, attr(A.RNG_NORMAL_DIST_MEAN, T.DOUBLE, "the mean of NORMAL", "0.0")] = None
    standard_deviation: Annotated[
        Float | None, attr(A.RNG_NORMAL_DIST_STANDARD_DEVIATION, T.DOUBLE, "the deviation of NORMAL", "1.0")
    ] = None
    maximum: Annotated[Float | None, attr(A.RNG_UNIFORM_DIST_MAXIMUM, T.DOUBLE, "upper end of UNIFORM", "1.0")] = None
    minimum: Annotated[Float | None, attr(A.RNG_UNIFORM_DIST_MINIMUM, T.DOUBLE, "lower end of UNIFORM", "0.0")] = None
    probability: Annotated[
        Float | None, attr(A.RNG_BERNOULLI_DIST_PROBABILITY, T.DOUBLE, "probability of a 1", "0.9 keeps 90 %")
    ] = None


def _scalar(name: str) -> tuple[Constraint, ...]:
    def tensor(op: "Rng") -> TensorSpec | None:
        value = getattr(op, name)
        return value if isinstance(value, TensorSpec) else None

    return (
        Constraint(
            id=f"rng.{name}.scalar",
            attribute=f"{name}.dims",
            look=lambda op: (*getattr(op, name).dims, *getattr(op, name).strides),
            check=Each(Equals(1)),
            when=lambda op: tensor(op) is not None,
            reason="it is one number",
            fix="use extents and strides of 1",
        ),
        Constraint(
            id=f"rng.{name}.integer",
            attribute=f"{name}.data_type",
            look=lambda op: getattr(op, name).data_type,
            check=OneOf(*INTEGERS),
            when=lambda op: tensor(op) is not None,
            reason="Philox counts in integers",
            fix="use INT64 or INT32",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
        ),
    )


class Rng(Operation):
    """y = random numbers, element i from counter offset + i // 4, lane i % 4, in row-major order of y."""

    descriptor = DescriptorType.OPERATION_RNG
    tag = "rng"
    constraints = ((*_scalar("seed"), *_scalar("offset"), output_constraints("rng")),)

    spec: Annotated[RngSpec, attr(A.OPERATION_RNG_DESC, T.BACKEND_DESCRIPTOR, "an RNG descriptor", "give an RngSpec")]
    y: Annotated[TensorSpec, port(A.OPERATION_RNG_YDESC, "output", "any extents")]
    seed: Annotated[
        TensorSpec | Int64,
        attr(
            A.OPERATION_RNG_SEED, (T.INT64, T.BACKEND_DESCRIPTOR), "an integer, or a scalar tensor", "0", role="input"
        ),
    ] = 0
    offset: Annotated[TensorSpec, port(A.OPERATION_RNG_OFFSET_DESC, "input", "a scalar: where the counter starts")]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        """Nothing: the extents of y are chosen."""
        return {}

    @property
    def compute_type(self) -> DataType:
        return DataType.FLOAT
