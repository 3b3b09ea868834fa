"""The wheel holds the packages, configurations and three organisms; modules are neither slivers nor doubles."""

import ast
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from experiments.report.page.document import HERE, SCRIPTS
from extract.shipped import ROOT

PACKAGES = set(
    "extract probes steering scoring judging organisms experiments serving refusal refusal_probes configs".split()
)
LEAST_LINES = 60  # of a module that has one importer


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    built = next(folder.glob("*.whl"))
    assert built.stat().st_size < 15e6
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_top_level_is_exactly_the_packages(wheel: list[str]) -> None:
    assert {name.split("/")[0] for name in wheel if ".dist-info" not in name} == PACKAGES


def test_the_shipped_organism_and_configurations_are_in(wheel: list[str]) -> None:
    wanted = {f"organisms/zoo/two-knobs/{name}" for name in (
        "model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "spec.yaml", "truth.json", "prompts.jsonl", "README.md",
    )}  # fmt: skip
    assert wanted | {
        "configs/quickstart.yaml",
        "configs/plain_text.txt",
        "configs/wraps.yaml",
        "configs/datasets/xstest.yaml",
        "configs/judges/endpoint.yaml",
        "configs/models/qwen3-4b-thinking.yaml",
        "configs/judges/rubric.md",
        "configs/lm_eval/refusal_joint.yaml",
        "configs/lm_eval/joint.py",
        "organisms/specs/two-knobs.yaml",
        *(f"{package}/py.typed" for package in PACKAGES - {"configs"}),  # a type checker reads their annotations
        *(f"{package}/__init__.pyi" for package in ("extract", "probes", "steering", "scoring", "judging", "refusal")),
        "extract/model/known_models.yaml",
        "experiments/report/page/page.css",
        "scoring/judges/english/rules.txt",
        "experiments/report/page/terms.yaml",
        "refusal/cli/hub/card.md.jinja",
        *(f"experiments/report/page/{name}" for name in SCRIPTS),
        *(f"serving/live/{name}" for name in ("live.html", "live.js", "live.css")),
        *(f"experiments/report/page/templates/{path.name}" for path in (HERE / "templates").glob("*.html")),
    } <= set(wheel)


def test_three_organisms_are_in_and_their_manifest(wheel: list[str]) -> None:
    """The others stay in the repository; `refusal organism get` takes them."""
    weights = {name for name in wheel if name.endswith(".safetensors")}
    organisms = {f"organisms/zoo/{name}/model.safetensors" for name in ("two-knobs", "shared-knob", "instructed")}
    assert weights == organisms | {"judging/local.safetensors"}
    assert "organisms/SHA256SUMS" in wheel


def test_loose_dictionaries_stay_at_the_edges() -> None:
    """Typed results cross a room's door; `dict[str, Any]` is left where JSON, YAML and foreign rows are parsed."""
    loose = re.compile(r"(?:dict|Mapping)\[str, (?:Any|object)\]")
    lines = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in sorted(PACKAGES - {"configs"})
        for path in Path(ROOT / package).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if loose.search(line)
    ]
    assert len(lines) <= 40, lines


@cache
def modules() -> dict[str, tuple[int, ast.Module]]:
    """Return the lines and the syntax tree of every module of the product, by its dotted name."""
    paths = [path for package in sorted(PACKAGES - {"configs"}) for path in sorted((ROOT / package).rglob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return {names[path]: (text.count("\n"), ast.parse(text)) for path, text in texts.items()}


def imported(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the name of each import, and whether it stands in a function."""
    nodes: list[tuple[ast.AST, bool]] = [(tree, False)]
    while nodes:
        node, lazy = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                yield name, lazy
        elif isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
            lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            nodes += [(child, lazy) for child in ast.iter_child_nodes(node)]


def test_no_small_module_has_a_single_importer() -> None:
    """It belongs into that importer; one that is imported in a function is apart for what importing it costs."""
    importers = defaultdict[str, set[str]](set)
    lazily = set[str]()
    for importer, (_, tree) in modules().items():
        for name, in_function in imported(tree):
            if name in modules() and name != importer:
                importers[name].add(importer)
                lazily |= {name} if in_function else set()
    slivers = {
        name: next(iter(importers[name]))
        for name, (lines, _) in modules().items()
        if lines < LEAST_LINES and len(importers[name]) == 1 and name not in lazily and not is_package(name)
    }
    assert slivers == {}


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).is_dir()


def test_no_public_class_name_stands_in_two_modules() -> None:
    defined = defaultdict[str, list[str]](list)
    for module, (_, tree) in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(module)
    assert {name: where for name, where in defined.items() if len(where) > 1} == {}


def test_the_files_that_the_architecture_names_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = {"/" + name.replace(".", "/") + ".py" for name in modules()}
    named = set(re.findall(r"`([a-z_/]+\.py)`", page))
    assert len(named) > 80
    assert [name for name in sorted(named) if not any(path.endswith("/" + name) for path in paths)] == []
