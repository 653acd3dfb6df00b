"""Private names of other people's code are used only where this list says why."""

import ast
import importlib
import pkgutil
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parent

# By file, the private names of foreign objects that it uses, and why.
ALLOWED = {
    "cli/config.py": {"_replace": "documented for named tuples"},
    "downstream/body.py": {"_Decompress": "a type for annotations, never looked up while running"},
    "downstream/malformed.py": {
        "_current_request": "the request being answered; without it a client that left is noticed later",
        "_task_handler": "the task that answers; the same",
        "_messages": "what was parsed and waits; without it a body that is not HTTP ends with its connection",
    },
    "server/__init__.py": {"_exit": "documented for leaving a process at once"},
    "upstream/plain.py": {
        "_read_nowait": "bytes that came before a break; without it the reader gets less of them"
    },
    "upstream/socket.py": {
        "_ssl_protocol": "leads to the buffer under TLS; without it unsent bytes count as sent, which is safe",
        "_transport": "the same",
    },
    "upstream/connector.py": {
        "_wrap_create_connection": "where a SOCKS proxy is put in; without it plain HTTP is refused",
        "_wrap_existing_connection": "the same",
    },
}

LOOKUPS = {"getattr", "setattr", "hasattr", "delattr"}
OURS = {"self", "cls"}


def private(name):
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def used(tree):
    """Private names that a module takes from something that is not ``self``, also by getattr."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in OURS):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKUPS:
            yield from (
                each.value
                for each in node.args[1:2]
                if isinstance(each, ast.Constant) and private(each.value)
            )


def inherited(path, tree):
    """Private names that classes of a module define or use on ``self`` and that a foreign base class has."""
    module = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not node.bases:
            continue
        module = module or importlib.import_module(
            ".".join(["gateway", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        )
        made = getattr(module, node.name, None)
        if not isinstance(made, type):
            continue
        foreign = [
            base
            for base in made.__mro__
            if base.__module__.split(".")[0] in {"aiohttp", "websockets", "asyncio"}
        ]
        has = {name for base in foreign for name in vars(base)}
        for inner in ast.walk(node):
            name = getattr(inner, "attr", None) or getattr(inner, "name", None)
            if private(name) and name in has:
                yield name


def found():
    """By file, what is used."""
    every = {}
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = {*used(tree), *inherited(path, tree)}
        if names:
            every[path.relative_to(ROOT).as_posix()] = names
    return every


def test_private_names_of_others_are_a_closed_list():
    """No file uses another private name of a library, and nothing on the list is used no more."""
    assert found() == {file: set(names) for file, names in ALLOWED.items()}


def test_the_search_sees_each_way_to_use_one():
    """An attribute, a lookup by name, and what a class takes from its base are all seen."""
    assert list(used(ast.parse("a._b\ngetattr(a, '_c', 1)\nself._d\na.__e__"))) == ["_b", "_c"]
    assert pkgutil.resolve_name("gateway.upstream.connector:_ThroughSocks")
    path = ROOT / "upstream/connector.py"
    assert "_wrap_create_connection" in set(inherited(path, ast.parse(path.read_text())))
