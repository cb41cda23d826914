"""MatMul, Gemm and Einsum."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.checks import Empty
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.arithmetic import whole
from graphdnn.onnx.operators.table import Need, operator


@operator("MatMul")
def matmul(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return emit.reshape(emit.matmul(*as_matrices(node, emit, a, b, (0, 1))), node.result_shape())


def as_matrices(node: Node, emit: Emitter, a: Tensor, b: Tensor, places: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Operands as NumPy's matmul takes them: a vector is a row before and a column behind."""
    if node.rank(places[0]) == 1:
        a = emit.reshape(a, (1, *node.shape(places[0])))
    if node.rank(places[1]) == 1:
        b = emit.reshape(b, (*node.shape(places[1]), 1))
    return a, b


@operator("Gemm")
def gemm(node: Node, emit: Emitter, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = emit.transpose(a, (1, 0)) if node.attribute("transA", 0) else a
    b = emit.transpose(b, (1, 0)) if node.attribute("transB", 0) else b
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    kind = type_of(a)
    y = emit.matmul(a, b, to=emit.arithmetic_of(a))
    y = y if alpha == 1.0 else emit.pointwise("MUL", y, alpha)
    if c is not None and beta != 0.0:
        c = c if beta == 1.0 else emit.pointwise("MUL", c, beta)
        y = emit.pointwise("ADD", y, c)
    return emit.convert(y, kind) if node.result_type().is_float else whole(emit, y, node.result_type())


def _terms(node: Node) -> tuple[list[str], str]:
    """The letters of each operand and of the result; an ellipsis becomes capital letters."""
    equation = node.attribute("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    hidden = ["..." in term for term in terms]
    names = "ABCDEFGH"
    widest = max((node.rank(i) - len(t.replace("...", "")) for i, t in enumerate(terms) if hidden[i]), default=0)
    for i, term in enumerate(terms):
        if hidden[i]:
            own = node.rank(i) - len(term.replace("...", ""))
            terms[i] = term.replace("...", names[widest - own : widest])
    if not arrow:
        letters = sorted(set("".join(terms)) - set(names))
        right = ("..." if any(hidden) else "") + "".join(x for x in letters if "".join(terms).count(x) == 1)
    return terms, right.replace("...", names[:widest])


def _einsum_reason(node: Node) -> str:
    terms, _ = _terms(node)
    repeats = any(len(set(term)) < len(term) for term in terms)
    return str(node.attribute("equation")) if len(terms) > 2 or repeats else ""


_FORM = Need(
    "equation",
    _einsum_reason,
    Empty("one or two operands, and no letter twice in one"),
    "sums of products of one or two operands with distinct letters are matrix products",
)


@operator("Einsum", since=12, needs=(_FORM,))
def einsum(node: Node, emit: Emitter, *operands: Tensor) -> Tensor:
    terms, result = _terms(node)
    shaped = [emit.reshape(x, node.shape(i)) for i, x in enumerate(operands)]
    reduced = [
        _summed(emit, x, term, set(result).union(*terms[:i], *terms[i + 1 :]))
        for i, (x, term) in enumerate(zip(shaped, terms, strict=True))
    ]
    if len(reduced) == 1:
        x, letters = reduced[0]
        return emit.reshape(emit.transpose(x, [letters.index(a) for a in result]), node.result_shape())
    (a, left), (b, right) = reduced
    shared = [x for x in left if x in right]
    batch, inner = [x for x in shared if x in result], [x for x in shared if x not in result]
    rows, columns = [x for x in left if x not in right], [x for x in right if x not in left]
    sizes = dict(zip(right, b.dim or (), strict=True))
    for letter, extent in zip(left, a.dim or (), strict=True):
        sizes[letter] = max(extent, sizes.get(letter, 1))
    a = _arranged(emit, a, left, (batch, rows, inner), sizes)
    b = _arranged(emit, b, right, (batch, inner, columns), sizes)
    y = emit.reshape(emit.matmul(a, b), [sizes[x] for x in (*batch, *rows, *columns)])
    order = [*batch, *rows, *columns]
    return emit.reshape(emit.transpose(y, [order.index(x) for x in result]), node.result_shape())


def _summed(emit: Emitter, x: Tensor, letters: str, kept: set[str]) -> tuple[Tensor, str]:
    """Without the letters that nothing else has."""
    gone = [i for i, letter in enumerate(letters) if letter not in kept]
    if not gone:
        return x, letters
    left = "".join(letter for letter in letters if letter in kept)
    dims = [d for i, d in enumerate(x.dim or ()) if i not in gone]
    return emit.reshape(emit.reduce(x, "ADD", gone), dims), left


def _arranged(emit: Emitter, x: Tensor, letters: str, groups: tuple[list[str], ...], sizes: dict[str, int]) -> Tensor:
    """The operand as [batch, rows, columns] by its letters."""
    order = [letter for group in groups for letter in group]
    x = emit.transpose(x, [letters.index(letter) for letter in order]) if order else x
    x = emit.expand(x, [sizes[letter] for letter in order]) if order else x
    dims = []
    for group in groups:
        extent = 1
        for letter in group:
            extent *= sizes[letter]
        dims.append(extent)
    return emit.reshape(x, dims)
