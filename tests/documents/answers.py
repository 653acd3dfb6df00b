"""Every error that the gateway itself may answer with, read from its source: texts and codes as clients see them.

A part that is filled in when it is answered is shown as ``…``. What cannot be read so is an error: nobody would find it in the README.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from gateway import errors
from gateway.errors import GatewayError
from tests.documents.places import ROOT

HOLE = "…"


@dataclass(frozen=True, order=True)
class Answer:
    """One error. ``status`` 0 is one that is decided when it is answered, ``code`` empty where there is none."""

    text: str
    code: str
    status: int


def classes():
    """The classes of errors by name."""
    return {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, GatewayError)
    }


@cache
def modules():
    """The syntax of all modules but the simulated upstream and the definitions themselves."""
    skipped = {ROOT / "gateway" / "errors.py"}
    return {
        path: ast.parse(path.read_text())
        for path in sorted((ROOT / "gateway").rglob("*.py"))
        if path not in skipped and "simulator" not in path.parts
    }


def name_of(call):
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def argument(call, name, index=None):
    """What is given for a parameter, or None."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[index] if index is not None and index < len(call.args) else None


@cache
def calls(name):
    """Every call of something of that name, with its module."""
    return [
        (tree, node)
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node) == name
    ]


def values(tree, node):
    """The texts that an expression may be."""
    if node is None or isinstance(node, ast.Constant):
        return [node.value if node is not None else ""]
    if isinstance(node, ast.JoinedStr):
        return ["".join(v.value if isinstance(v, ast.Constant) else HOLE for v in node.values)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in values(tree, node.left) for right in values(tree, node.right)]
    if isinstance(node, ast.BoolOp):
        return [v.value for v in node.values if isinstance(v, ast.Constant)]
    if isinstance(node, ast.Name):
        around = [at for at in functions(tree) if node in ast.walk(at)]
        for statement in [*(n for at in around for n in ast.walk(at)), *tree.body]:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and node.id in targets(statement):
                return values(tree, statement.value)
        found = [pair for at in around for pair in passed(tree, at, node.id)]
        if found:
            return [text for elsewhere, value in found for text in values(elsewhere, value)]
        raise ValueError(f"line {node.lineno}: nothing tells what {node.id} is")
    return [HOLE]


def targets(statement):
    """The names that a statement assigns."""
    return {getattr(t, "id", "") for t in getattr(statement, "targets", [getattr(statement, "target", None)])}


def functions(tree):
    """All functions of a module."""
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


def passed(tree, function, parameter):
    """What callers pass for a parameter of a function; those of a private one are in its own module."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args) if one.arg != "self"]
    index = names.index(parameter) if parameter in names else None
    if index is None and parameter not in [one.arg for one in function.args.kwonlyargs]:
        return []
    private = function.name.startswith("_")
    found = [
        (at, argument(c, parameter, index)) for at, c in calls(function.name) if at is tree or not private
    ]
    return [(at, value) for at, value in found if value is not None]


def together(tree, texts, codes):
    """Each text with its code: what one caller passes for both belongs together."""
    if isinstance(texts, ast.Name) and isinstance(codes, ast.Name):
        for at in functions(tree):
            if texts in ast.walk(at) and {texts.id, codes.id} <= {one.arg for one in at.args.kwonlyargs}:
                callers = zip(passed(tree, at, texts.id), passed(tree, at, codes.id), strict=True)
                return [pair for (there, text), (_, code) in callers for pair in together(there, text, code)]
    return [(text, code) for text in values(tree, texts) for code in values(tree, codes)]


def status_of(call, given):
    """The status of an error of that class."""
    if given is not None:
        return given.value if isinstance(given, ast.Constant) else 0
    return classes()[name_of(call)].status


def answers():
    """All of them."""
    found = set()
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and name_of(node) in classes():
                texts, codes = argument(node, "message", 0), argument(node, "code")
                status = status_of(node, argument(node, "status"))
            elif isinstance(node, ast.Call) and name_of(node) == "error_body":
                texts, codes, status = argument(node, "message"), argument(node, "code"), 0
            elif isinstance(node, ast.Dict):
                given = {
                    k.value: v
                    for k, v in zip(node.keys, node.values, strict=True)
                    if isinstance(k, ast.Constant)
                }
                if not {"message", "code"} <= given.keys():
                    continue
                texts, codes, status = given["message"], given["code"], 0
            else:
                continue
            found |= {Answer(text, code or "", status) for text, code in together(tree, texts, codes)}
    return sorted(found)
