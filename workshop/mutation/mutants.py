"""Small mistakes put into a module, one at a time, in the process that has imported it already.

A mistake changes the syntax tree of a file; the file itself is not touched. What is compiled from the changed
tree is given to the functions that live already: everybody who holds one has the mistake too.

comparison   < becomes <=, == becomes !=, in becomes not in
arithmetic   + becomes -, * becomes /, & becomes |
constant     3 becomes 4, 0.5 becomes 1.5, True becomes False, "x" becomes "x_"
boolean      and becomes or, not is left out
condition    what an if, a while or a comprehension asks is turned round
return       None is returned
removed      a call, a raise, or an assignment to a part of something is left out
default      of an argument: changed as a constant is
"""

import ast
import copy
import gc
import sys
import types
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BODIES = ("body", "orelse", "finalbody")
HITS = "__hits__"


class Site(NamedTuple):
    """Where a mistake can be made.

    Attributes:
        path: The file.
        index: Of the node, in the order of ``ast.walk``.
        kind: Of mistake.
        line: For people.
        function: Name and first line of the function around it; None outside of functions.
        statement: Line and column of the statement around it: whoever runs that one may notice.
    """

    path: str
    index: int
    kind: str
    line: int
    function: tuple[str, int] | None
    statement: tuple[int, int]


class _Finder(ast.NodeVisitor):
    """Collects the sites of a tree."""

    def __init__(self, path, tree):
        self.path, self.sites = path, []
        self.order = {node: i for i, node in enumerate(ast.walk(tree))}
        self.names, self.function, self.statement = [], None, (0, 0)
        self.is_text_for_people = False

    def visit(self, node):
        before = self.function, self.statement, self.names, self.is_text_for_people
        if isinstance(node, ast.stmt):
            self.statement = node.lineno, node.col_offset
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            self.is_text_for_people = True
        if self.function is None and isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self.names = [*self.names, node.name]
            if isinstance(node, FUNCTIONS):
                self.function = ".".join(self.names), _first_line(node)
        for kind in self._kinds(node):
            self._add(node, kind)
        self._children(node)
        self.function, self.statement, self.names, self.is_text_for_people = before

    def _add(self, node, kind):
        line = getattr(node, "lineno", self.statement[0])
        self.sites.append(Site(self.path, self.order[node], kind, line, self.function, self.statement))

    def _is_outermost(self, node):
        return self.function == (".".join(self.names), _first_line(node))

    def _children(self, node):
        """What is inside; no annotations, no decorators, no docstrings, nothing in classes but methods."""
        if isinstance(node, FUNCTIONS):
            for default in [*node.args.defaults, *node.args.kw_defaults] if self._is_outermost(node) else []:
                if isinstance(default, ast.Constant) and _changed(default.value) is not None:
                    self._add(default, "default")
            children = node.body
        elif isinstance(node, ast.ClassDef):
            children = [x for x in node.body if isinstance(x, (*FUNCTIONS, ast.ClassDef))]
        elif isinstance(node, ast.Module):
            children = [x for x in node.body if isinstance(x, (*FUNCTIONS, ast.ClassDef)) or _is_table(x)]
        elif isinstance(node, ast.AnnAssign):
            children = [node.target, *([node.value] if node.value else [])]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            children = []
        else:
            children = list(ast.iter_child_nodes(node))
        for child in children:
            self.visit(child)

    def _kinds(self, node):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield "comparison"
        if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
            yield "arithmetic"
        is_constant = isinstance(node, ast.Constant) and _changed(node.value) is not None
        if is_constant and not (self.is_text_for_people and isinstance(node.value, str)):
            yield "constant"
        if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            yield "boolean"
        if isinstance(node, ast.If | ast.While | ast.IfExp) or (
            isinstance(node, ast.comprehension) and node.ifs
        ):
            yield "condition"
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield "return"
        if self.function is not None and _may_go(node):
            yield "removed"


def sites(path, source):
    """All sites of a file, in order."""
    tree = ast.parse(source)
    finder = _Finder(path, tree)
    finder.visit(tree)
    return finder.sites


def mutate(site, source):
    """The changed tree, and the changed node."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[site.index]
    if site.kind == "comparison":
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif site.kind == "arithmetic":
        node.op = ARITHMETIC[type(node.op)]()
    elif site.kind in {"constant", "default"}:
        node.value = _changed(node.value)
    elif site.kind == "boolean" and isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif site.kind == "return":
        node.value = ast.copy_location(ast.Constant(None), node.value)
    elif site.kind == "condition" and isinstance(node, ast.comprehension):
        node.ifs[0] = _negated(node.ifs[0])
    elif site.kind == "condition":
        node.test = _negated(node.test)
    else:
        instead = node.operand if site.kind == "boolean" else ast.copy_location(ast.Pass(), node)
        tree = _Replace(node, instead).visit(tree)
        node = instead
    return tree, node


def shown(site, source):
    """The mistake as two lines: what stands there, and what is tried instead."""
    before, after = ast.parse(source), mutate(site, source)[0]
    for tree in (before, after):
        _Shorten().visit(tree)
    old, new = (_statement(tree, site).splitlines() for tree in (before, after))
    changed = [(a, b) for a, b in zip(old, new, strict=False) if a != b] or [(old[0], (new or [""])[0])]
    return changed[0][0].strip(), changed[0][1].strip()


def lines(source):
    """The lines of every statement of a file, by where it stands, as ``shown`` shows them."""
    tree = _Shorten().visit(ast.parse(source))
    statements = [x for x in ast.walk(tree) if isinstance(x, ast.stmt) and hasattr(x, "lineno")]
    return {(x.lineno, x.col_offset): [y.strip() for y in ast.unparse(x).splitlines()] for x in statements}


class _Replace(ast.NodeTransformer):
    def __init__(self, node, instead):
        self.node, self.instead = node, instead

    def visit(self, node):
        return self.instead if node is self.node else self.generic_visit(node)


class _Shorten(ast.NodeTransformer):
    """Leaves out docstrings, which are no part of a statement that is shown."""

    def visit_FunctionDef(self, node):
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def _statement(tree, site):
    for node in ast.walk(tree):
        at = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if isinstance(node, ast.stmt) and at == site.statement:
            return ast.unparse(node)
    return ""


def _negated(test):
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _changed(value):
    """Another constant of its kind; None where there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}_" if isinstance(value, str) else None


def _is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def _first_line(function):
    return min([function.lineno, *(x.lineno for x in function.decorator_list)])


def _is_table(node):
    """Whether a statement of a module gives one name a value."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target = node.targets[0]
    return isinstance(target, ast.Name) and not target.id.startswith("__")


def _may_go(node):
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete)


# Into the living process


class Living:
    """The functions and modules of some files, as they are in this process."""

    def __init__(self, paths):
        self.modules = {
            module.__file__: module
            for module in list(sys.modules.values())
            if getattr(module, "__file__", None) in paths
        }
        self.functions = {}
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType and thing.__code__.co_filename in self.modules:
                key = thing.__code__.co_filename, thing.__code__.co_qualname, thing.__code__.co_firstlineno
                self.functions.setdefault(key, []).append(thing)

    def install(self, site, source):
        """Make the mistake in this process.

        Raises:
            LookupError: If nothing there can have it.
        """
        tree, node = mutate(site, source)
        ast.fix_missing_locations(tree)
        if site.function is None:
            self._install_table(site, tree)
            return
        found = self.functions.get((site.path, *site.function), [])
        if not found:
            raise LookupError(f"{site.function} does not live")
        if site.kind == "default":
            for function in found:
                _set_default(function, site, source, node.value)
            return
        code = _codes(compile(tree, site.path, "exec"))[site.function]
        for function in found:
            function.__code__ = code

    def _install_table(self, site, tree):
        module = self.modules[site.path]
        (assign,) = [x for x in tree.body if (x.lineno, x.col_offset) == site.statement]
        name = assign.targets[0].id
        before, expression = vars(module)[name], ast.Expression(assign.value)
        value = eval(compile(expression, site.path, "eval"), vars(module))  # noqa: S307
        for other in list(sys.modules.values()):
            if vars(other).get(name, other) is before:
                setattr(other, name, value)

    def instrument(self, path, source, numbers, hits):
        """Have every statement in the functions of a file note that it ran.

        Args:
            path: The file.
            source: Its text.
            numbers: Is given the number of each statement, (path, line, column).
            hits: Where statements note it, by their numbers: anything that can be assigned to.
        """
        tree = _instrumented(ast.parse(source), path, numbers)
        codes = _codes(compile(tree, path, "exec"))
        vars(self.modules[path])[HITS] = hits
        for (of, *key), functions in self.functions.items():
            if of == path and tuple(key) in codes:
                for function in functions:
                    function.__code__ = codes[tuple(key)]


def _set_default(function, site, source, value):
    """Set the default that stands where the site is."""
    nodes = list(ast.walk(ast.parse(source)))
    target = nodes[site.index]
    (around,) = [
        x for x in nodes if isinstance(x, FUNCTIONS) and target in [*x.args.defaults, *x.args.kw_defaults]
    ]
    if target in around.args.defaults:
        place = around.args.defaults.index(target)
        defaults = list(function.__defaults__)
        defaults[place] = value
        function.__defaults__ = tuple(defaults)
    else:
        place = around.args.kw_defaults.index(target)
        function.__kwdefaults__ = function.__kwdefaults__ | {around.args.kwonlyargs[place].arg: value}


def _codes(code):
    """Code of all functions below, by name and first line."""
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= {(inner.co_qualname, inner.co_firstlineno): inner, **_codes(inner)}
    return found


def _instrumented(tree, path, numbers):
    tree = copy.deepcopy(tree)
    for outer in ast.walk(tree):
        if not isinstance(outer, FUNCTIONS):
            continue
        for node in ast.walk(outer):
            for name in BODIES:
                block = getattr(node, name, None)
                if isinstance(block, list) and block and not getattr(node, f"noted_{name}", False):
                    setattr(node, name, [x for one in block for x in (_noting(one, path, numbers), one)])
                    setattr(node, f"noted_{name}", True)
    return ast.fix_missing_locations(tree)


def _noting(statement, path, numbers):
    number = numbers.setdefault((path, statement.lineno, statement.col_offset), len(numbers))
    note = ast.parse(f"{HITS}[{number}] = 1").body[0]
    for node in ast.walk(note):
        ast.copy_location(node, statement)
    return note
