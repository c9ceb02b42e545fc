"""The house keeps its shape: imports point down, no ring, and what must be quick brings no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "visiontrain"
LAYERS = {
    "cli": 8, "__main__": 8,
    "api": 7, "actions": 7, "__init__": 7,
    "checks": 6, "launch": 6,
    "training": 5, "exporters": 5,
    "evaluation": 4, "prediction": 4,
    "models": 3, "losses": 3, "data": 3,
    "nn": 2, "boxes": 2, "batch": 2, "drawing": 2, "record": 2,
    "config": 1, "distributed": 1, "fetching": 1, "meeting": 1, "memory": 1,
    "errors": 0, "paths": 0, "place": 0, "source": 0, "terminal": 0, "inline": 0,
}  # fmt: skip
STRANGERS = {"models", "losses", "data"}  # of one layer, and never importing each other


def modules() -> dict[str, Path]:
    """Dotted name inside the package -> file."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imports(source: str, name: str, known: set[str], *, local: bool = True) -> set[str]:
    """Modules of the package that a source imports; ``local`` counts imports inside functions as well."""
    found = set()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree)) if local else _at_import(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import in line {node.lineno}; write the whole name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for full in names:
            if full.split(".")[0] == "visiontrain":
                inner = full.removeprefix("visiontrain").removeprefix(".")
                while inner and inner not in known:
                    inner = inner.rpartition(".")[0]
                found.add(inner or "__init__")
    return found - {name}


def _at_import(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run when a module is imported: not those in functions or under TYPE_CHECKING."""
    found: list[ast.stmt] = []
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        found.append(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


def direction_problem(importer: str, imported: str) -> str:
    """The sentence about an import that points the wrong way, or ""."""
    mine, its = importer.split(".")[0], imported.split(".")[0]
    file = f"{importer.replace('.', '/')}.py"
    if mine == its or (imported == "__init__" and importer == "cli"):  # for the version alone
        return ""
    if mine not in LAYERS or its not in LAYERS:
        return f"{file}: {mine if mine not in LAYERS else its} has no layer: give it one in tests/test_house.py"
    if LAYERS[its] > LAYERS[mine]:
        return f"{file} imports {imported}: layer {LAYERS[mine]} may not import layer {LAYERS[its]}"
    if {mine, its} <= STRANGERS:
        return f"{file} imports {imported}: models, losses and data never import each other"
    return ""


def test_imports_point_down():
    files = modules()
    problems = [
        problem
        for name, path in files.items()
        if name != "__init__"  # the lazy door to the layers above it
        for imported in sorted(imports(path.read_text(encoding="utf-8"), name, set(files)))
        if (problem := direction_problem(name, imported))
    ]
    assert not problems, "\n" + "\n".join(problems)


def test_a_wrong_direction_is_told_in_one_sentence():
    known = {"training.window", "api", "data.index"}
    source = "def f():\n    from visiontrain.api import train\n"
    assert imports(source, "training.window", known) == {"api"}
    assert (
        direction_problem("training.window", "api") == "training/window.py imports api: layer 5 may not import layer 7"
    )
    assert "never import each other" in direction_problem("models.yolov8", "data.index")


def test_no_imports_run_in_a_ring():
    files = modules()
    graph = {
        name: imports(path.read_text(encoding="utf-8"), name, set(files), local=False) for name, path in files.items()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import ring: {' -> '.join([*path[path.index(name) :], name])}"
        if name not in done:
            for imported in graph.get(name, ()):
                visit(imported, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize(
    "module",
    [
        "",
        ".errors",
        ".paths",
        ".place",
        ".config.schema",
        ".config.parse",
        ".config.help",
        ".config.files",
        ".cli",
        ".actions",
        ".api",
        ".training.plan",
    ],
)
def test_what_answers_at_once_brings_no_torch(module):
    code = f"import sys, visiontrain{module}; print([m for m in ('torch', 'cv2', 'numpy', 'yaml') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_are_there():
    code = "import visiontrain; print([n for n in visiontrain.__all__ if not hasattr(visiontrain, n)])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_source_is_ascii():
    strange = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if not line.isascii()
    ]
    assert not strange
