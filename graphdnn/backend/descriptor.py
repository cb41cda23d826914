"""Descriptor: created, set, finalized, read, destroyed. The protocol, the same for every type.

A parent keeps what a child describes, not the child: children may be destroyed
once they were set. Nothing changes in a call that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from graphdnn.attribute_names import AttributeName
from graphdnn.backend import rules
from graphdnn.backend.attribute_elements import ELEMENTS, expected_of, split
from graphdnn.backend.descriptor_types import KINDS, UNSUPPORTED, Row
from graphdnn.backend.handle import handle_problem
from graphdnn.enums import AttributeType, CEnum, DescriptorType, shown
from graphdnn.errors import Rejection, error_for, raise_if
from graphdnn.rules import Rule
from graphdnn.scalars import whole
from graphdnn.spec import ATTR_REFUSED

_COUNT_THEM = "pass as many elements as the count says"
_OPERATION = "CUDNN_BACKEND_OPERATION_"

E = TypeVar("E", bound=CEnum)


class Descriptor:
    """An opaque object of the C interface."""

    __slots__ = ("_content", "_destroyed", "_finalized", "_kind", "_values")

    def __init__(self, kind: DescriptorType) -> None:
        self._kind = KINDS[kind]
        self._destroyed = False
        self.reset()

    @property
    def type(self) -> DescriptorType:
        return self._kind.descriptor

    @property
    def finalized(self) -> bool:
        return self._finalized

    @property
    def destroyed(self) -> bool:
        return self._destroyed

    @property
    def content(self) -> Any:
        """What a finalized descriptor describes: a spec of the core, a graph, a plan."""
        return self._content

    def __repr__(self) -> str:
        state = "destroyed" if self._destroyed else "finalized" if self._finalized else "not finalized"
        return f"<{self.type.name} descriptor, {state}>"

    def reset(self) -> None:
        """As it was created."""
        self._values: dict[str, Any] = {}
        self._content: Any = None
        self._finalized = False

    def destroy(self) -> None:
        self.reset()
        self._destroyed = True

    # The three calls.

    def set(self, name: object, kind: object, count: object, values: Any) -> None:
        """Keep the elements of an attribute; a second set replaces the first."""
        if self._finalized:
            raise self._error(rules.FINALIZED, _named(name), "set by cudnnBackendSetAttribute")
        row = self._row(name)
        label = row.attr.name.c_name
        if row.field is None:
            raise self._error(rules.GET_ONLY, label, "cudnnBackendSetAttribute")
        element = self._element_type(row, kind)
        items = self._items(row, element, count, values)
        value = self._collected(row, element, items)
        if row.capture is not None:
            value = row.capture(value, self._values, self.type.name, label)
            raise_if([value] if isinstance(value, Rejection) else [])
        self._values[row.field] = value

    def finalize(self) -> None:
        """Check everything and freeze; a failure leaves the descriptor as it was. Once only: then it is read-only."""
        if self._finalized:
            raise self._error(rules.FINALIZED, "cudnnBackendFinalize", "called again")
        if self._kind.settings is None:
            raise self._error(rules.FILLED_ONLY, "cudnnBackendFinalize", "called")
        self.fill(self._kind.build(self._kind.settings(**self._values)))

    def get(self, name: object, kind: object, requested: object, values: Any) -> tuple[int, Any]:
        """(true number of elements, the first ``requested`` of them)."""
        if not self._finalized:
            raise self._error(rules.NOT_FINALIZED, _named(name), "read by cudnnBackendGetAttribute")
        row = self._row(name)
        label = row.attr.name.c_name
        element = self._element_type(row, kind)
        capacity = _index(requested)
        if capacity is None or capacity < 0:
            reason = "it is the number of elements to return; 0 asks for how many there are"
            raise self._error(rules.COUNT, label, requested, expected="0 or more", reason=reason, fix="pass 0 or more")
        value = row.read(self._content)
        if element is AttributeType.BACKEND_DESCRIPTOR:
            contents = self._contents(row, value)
            return len(contents), self._fill_all(row, contents, capacity, values)
        if values is not None:
            raise self._error(rules.GET_VALUES, label, type(values).__name__)
        if element is AttributeType.CHAR:
            text = "" if value is None else value
            return len(text.encode()) + 1, text.encode()[:capacity].decode(errors="ignore")
        elements = self._given(row, element, value)
        return len(elements), elements[:capacity]

    def fill(self, content: Any) -> None:
        """Finalize with a content that is known to be right."""
        self._content = content
        self._finalized = True

    # What they check.

    def _error(self, rule: Rule, attribute: str, value: object, **words: str) -> Exception:
        return error_for([self._reject(rule, attribute, value, **words)])

    def _reject(self, rule: Rule, attribute: str, value: object, **words: str) -> Rejection:
        return rule.reject(self.type.name, attribute, value, status=None, **words)

    def _row(self, name: object) -> Row:
        known = _member(AttributeName, name)
        if known is None:
            raise self._error(rules.ATTRIBUTE_NAME, "attributeName", name)
        if known in self._kind.refused:
            row = self._kind.refused[known]
            raise self._error(ATTR_REFUSED, known.c_name, "named", reason=row.reason, fix=row.fix)
        if known not in self._kind.rows:
            names = ", ".join(n.c_name for n in self._kind.rows)
            owners = (
                " or ".join(d.c_name for d, kind in KINDS.items() if known in kind.rows) or "descriptor of its kind"
            )
            raise self._error(rules.FOREIGN, known.c_name, self.type.c_name, known=names, owners=owners)
        return self._kind.rows[known]

    def _element_type(self, row: Row, kind: object) -> AttributeType:
        known = _member(AttributeType, kind)
        if known is None or known not in row.attr.types:
            expected = " or ".join(t.c_name for t in row.attr.types)
            detail = "this is no attribute type" if known is None else f"this attribute is {row.attr.expected}"
            given = kind if known is None else known.c_name
            raise self._error(rules.TYPE, row.attr.name.c_name, given, expected=expected, detail=detail)
        return known

    def _items(self, row: Row, element: AttributeType, given: object, values: Any) -> Sequence[Any]:
        """The elements, as many as the attribute may have and the count says."""
        label = row.attr.name.c_name
        low, high = row.attr.count
        count = _index(given)
        if count is None or not low <= count <= high:
            span = str(low) if low == high else f"{low} to {high}"
            expected = f"{span} element{'s' if span != '1' else ''}"
            reason = f"this attribute is {row.attr.expected}"
            raise self._error(rules.COUNT, label, given, expected=expected, reason=reason, fix=row.attr.fix)
        is_pointer = element is AttributeType.VOID_PTR and count == 1  # which may be null itself
        if values is None and count and not is_pointer:
            raise self._error(rules.NULL, label, None, expected=f"{count} elements: {expected_of(element)}")
        try:
            items = split(element, count, [] if values is None and not count else values)
        except ValueError as error:
            raise self._error(
                rules.VALUE, label, values, expected=expected_of(element), detail=str(error), fix=row.attr.fix
            ) from None
        if len(items) != count:
            reason = f"{len(items)} elements were passed" + (
                ", the terminating NUL included" if element is AttributeType.CHAR else ""
            )
            raise self._error(rules.COUNT, label, count, expected=f"{len(items)}", reason=reason, fix=_COUNT_THEM)
        return items

    def _collected(self, row: Row, element: AttributeType, items: Sequence[Any]) -> Any:
        """The value of a field from checked elements; raises with the problems of all of them."""
        if element is AttributeType.CHAR:
            return self._text(row, items)
        read = self._reader(element, row)
        labels = [f"{row.attr.name.c_name}[{i}]" if row.is_list else row.attr.name.c_name for i in range(len(items))]
        found = [read(item, label) for item, label in zip(items, labels, strict=True)]
        raise_if(r for r in found if isinstance(r, Rejection))
        return tuple(found) if row.is_list else found[0]

    def _reader(self, element: AttributeType, row: Row) -> Callable[[Any, str], Any]:
        if element is AttributeType.BACKEND_DESCRIPTOR:
            return lambda item, label: self._child(item, label, row.nested)
        if element is AttributeType.HANDLE:
            return lambda item, label: handle_problem(item, self.type.name, label) or item
        return lambda item, label: self._plain(item, label, row, element)

    def _plain(self, item: Any, label: str, row: Row, element: AttributeType) -> Any:
        """The value of a number, enum member, bool or pointer, or why it has none."""
        if item is None and element is not AttributeType.VOID_PTR:
            return self._reject(rules.NULL, label, None, expected=expected_of(element))
        try:
            return ELEMENTS[element].read(item)
        except ValueError as error:
            expected = f"{row.attr.expected}: {expected_of(element)}"
            return self._reject(rules.VALUE, label, item, expected=expected, detail=str(error), fix=row.attr.fix)

    def _text(self, row: Row, data: Sequence[Any]) -> str:
        try:
            return bytes(data[:-1]).decode()
        except UnicodeDecodeError as error:
            expected = expected_of(AttributeType.CHAR)
            raise self._error(
                rules.VALUE, row.attr.name.c_name, data, expected=expected, detail=str(error), fix=row.attr.fix
            ) from None

    def _child(self, item: Any, label: str, nested: tuple[DescriptorType, ...]) -> Any:
        """What a nested descriptor describes, or why it cannot be taken."""
        problem = descriptor_problem(item, self.type.name, label)
        problem = problem or next(_misfits(item, self.type.name, label, nested), None)
        return problem or item.content

    # What get gives.

    def _given(self, row: Row, element: AttributeType, value: Any) -> list[Any]:
        items = () if value is None else value if row.is_list else (value,)
        try:
            return [ELEMENTS[element].give(v) if element in ELEMENTS else v for v in items]
        except ValueError as error:
            expected = " or ".join(t.c_name for t in row.attr.types if t is not element)
            raise self._error(
                rules.TYPE, row.attr.name.c_name, element.c_name, expected=expected, detail=str(error)
            ) from None

    def _contents(self, row: Row, value: Any) -> Sequence[Any]:
        items = () if value is None else value if row.is_list else (value,)
        if any(isinstance(item, int) for item in items):  # RNG_SEED is a number or a tensor
            expected = " or ".join(t.c_name for t in row.attr.types if t is not AttributeType.BACKEND_DESCRIPTOR)
            detail = f"{value} is a number; read it with another type"
            kind = AttributeType.BACKEND_DESCRIPTOR.c_name
            raise self._error(rules.TYPE, row.attr.name.c_name, kind, expected=expected, detail=detail)
        return items

    def _fill_all(self, row: Row, contents: Sequence[Any], requested: int, values: Any) -> list[Descriptor]:
        """Fill as many of the caller's descriptors as there are contents; all of them are checked first."""
        label = row.attr.name.c_name
        if requested and values is None:
            expected = f"{requested} descriptors to fill"
            raise self._error(rules.NULL, label, None, expected=expected)
        targets = [] if values is None else list(values) if isinstance(values, (list, tuple)) else [values]
        if len(targets) != requested:
            reason = f"{len(targets)} descriptors were passed"
            raise self._error(rules.COUNT, label, requested, expected=str(len(targets)), reason=reason, fix=_COUNT_THEM)
        # A list of operations holds several types: each target has to be of the type of its own content.
        kinds = [(c.descriptor,) if hasattr(c, "descriptor") else row.nested for c in contents]
        kinds += [row.nested] * (len(targets) - len(kinds))
        raise_if(
            problem
            for i, (target, nested) in enumerate(zip(targets, kinds, strict=False))
            for problem in self._target_problems(target, targets[:i], f"{label}[{i}]", nested)
        )
        filled = targets[: len(contents)]
        for target, content in zip(filled, contents, strict=False):
            target.fill(content)
        return filled

    def _target_problems(
        self, target: Any, before: list[Any], label: str, nested: tuple[DescriptorType, ...]
    ) -> Iterator[Rejection]:
        problem = descriptor_problem(target, self.type.name, label)
        if problem is not None:
            yield problem
        elif target.type not in nested:
            yield self._reject(rules.NESTED_TYPE, label, target, expected=_names(nested))
        elif target.finalized or any(target is other for other in before):
            yield self._reject(rules.GET_TARGET, label, target)


def _index(value: Any) -> int | None:
    """An exact integer; None for everything else, bools included."""
    try:
        return whole(value)
    except ValueError:
        return None


def _named(name: object) -> str:
    known = _member(AttributeName, name)
    return shown(name) if known is None else known.c_name


def _member(enum: type[E], value: object) -> E | None:
    """The member with this integer; None for everything else, members of other enums included."""
    number = None if isinstance(value, CEnum) and type(value) is not enum else _index(value)
    try:
        return None if number is None else enum(number)
    except ValueError:
        return None


def create(kind: object) -> Descriptor:
    """A new descriptor; raises for the types that graphdnn has no use for, with the reason."""
    where = "cudnnBackendCreateDescriptor"
    known = _member(DescriptorType, kind)
    if known is None or known not in KINDS:
        reason, fix = UNSUPPORTED[known] if known is not None else (
            "the header has no such descriptor type", "use one of the CUDNN_BACKEND_..._DESCRIPTOR constants"
        )  # fmt: skip
        given = kind if known is None else known.c_name
        raise error_for([rules.DESCRIPTOR_TYPE.reject(where, "descriptorType", given, reason=reason, fix=fix)])
    return Descriptor(known)


def descriptor_problem(item: Any, where: str, label: str) -> Rejection | None:
    """Why ``item`` is no usable descriptor, or None."""
    if item is None:
        return rules.DESCRIPTOR_NULL.reject(where, label, None)
    if not isinstance(item, Descriptor):
        return rules.DESCRIPTOR_KIND.reject(where, label, type(item).__name__)
    if item.destroyed:
        return rules.DESTROYED.reject(where, label, item)
    return None


def usable(item: Any, where: str, label: str = "descriptor") -> Descriptor:
    """The descriptor; raises when it is none, or destroyed."""
    problem = descriptor_problem(item, where, label)
    raise_if([] if problem is None else [problem])
    assert isinstance(item, Descriptor)
    return item


def content_of(item: Any, kind: DescriptorType, where: str, label: str) -> Any:
    """What a finalized descriptor of this type describes; raises when it is not one."""
    raise_if(_misfits(usable(item, where, label), where, label, (kind,)))
    return item.content


def _misfits(item: Descriptor, where: str, label: str, nested: tuple[DescriptorType, ...]) -> Iterator[Rejection]:
    if item.type not in nested:
        yield rules.NESTED_TYPE.reject(where, label, item.type.c_name, expected=_names(nested))
    elif not item.finalized:
        yield rules.NESTED_NOT_FINALIZED.reject(where, label, item)


def _names(kinds: tuple[DescriptorType, ...]) -> str:
    names = [kind.c_name for kind in kinds]
    if len(names) > 1 and all(name.startswith(_OPERATION) for name in names):
        return f"an operation: one of the {len(names)} {_OPERATION}..._DESCRIPTOR"
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"
