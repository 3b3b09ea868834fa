"""The wheel holds exactly the packages, the configurations and the shipped organisms; nothing names a machine."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from experiments.report.page.document import HERE, SCRIPTS
from extract.shipped import ROOT

PACKAGES = {
    "extract",
    "probes",
    "steering",
    "scoring",
    "judging",
    "organisms",
    "experiments",
    "serving",
    "refusal",
    "refusal_probes",
    "configs",
}


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
        *(f"{package}/__init__.pyi" for package in ("extract", "probes", "steering", "scoring", "judging", "refusal")),
        "experiments/report/page/page.css",
        "refusal/cli/hub/card.md.jinja",
        *(f"experiments/report/page/{name}" for name in SCRIPTS),
        *(f"serving/live/{name}" for name in ("live.html", "live.js", "live.css")),
        *(f"experiments/report/page/templates/{path.name}" for path in (HERE / "templates").glob("*.html")),
    } <= set(wheel)


def test_three_organisms_are_in_and_their_manifest(wheel: list[str]) -> None:
    """The others stay in the repository; `refusal organism get` takes them."""
    weights = {name for name in wheel if name.endswith(".safetensors")}
    assert weights == {f"organisms/zoo/{name}/model.safetensors" for name in ("two-knobs", "shared-knob", "instructed")}
    assert "organisms/SHA256SUMS" in wheel


def test_no_compiled_or_partial_files(wheel: list[str]) -> None:
    assert not [name for name in wheel if name.endswith((".pyc", ".partial"))]


def test_every_package_module_is_documented() -> None:
    undocumented = [
        str(path.relative_to(ROOT))
        for package in PACKAGES - {"configs"}
        for path in Path(ROOT / package).rglob("*.py")
        if not path.read_text(encoding="utf-8").startswith('"""')
    ]
    assert undocumented == []


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
