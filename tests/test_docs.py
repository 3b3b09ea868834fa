"""Pages are short, links lead somewhere, the index lists every page, code names pages that exist, figures agree."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from extract.shipped import ROOT
from scoring.compare.fail_if import parse_all

README = ROOT / "README.md"
INDEX = ROOT / "docs" / "README.md"
LINK = re.compile(r"(?:\]\(|src=\")([^)\"\s]+)")
ANCHOR = re.compile(r'<a id="([^"]+)">|^#+ (.+)$', re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / line for line in listed.splitlines()]


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: explicit ids, and headings as GitHub names them."""
    found = ANCHOR.findall(prose(page))
    return {name or re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for name, heading in found}


def missing(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no anchor of a page."""
    gone = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or (target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))):
            continue
        gone.append(link)
    return gone


PAGES = [README, *tracked("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert missing(page) == []


def test_a_dead_link_and_a_dead_anchor_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](none.md) [c](page.md#three) [d](https://x.y)\n", encoding="utf-8")
    assert missing(page) == ["none.md", "page.md#three"]


def test_the_index_links_every_file_of_docs_once() -> None:
    linked = [(INDEX.parent / link).resolve() for link in LINK.findall(prose(INDEX))]
    pages = [path for path in tracked("docs/*") if path.suffix in (".md", ".ipynb") and path != INDEX]
    assert [str(path.relative_to(ROOT)) for path in pages if linked.count(path) != 1] == []


def test_every_image_is_shown() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in LINK.findall(prose(page))}
    assert [path.name for path in tracked("docs/images/*") if path not in shown] == []


def test_the_tree_of_the_readme_is_true() -> None:
    text = README.read_text(encoding="utf-8")
    tree = FENCED.findall(text)[-1].splitlines()[1:-1]
    assert len(tree) <= 25
    folders = named(tree)
    assert [name for name in folders if not (ROOT / name).is_dir()] == []
    top = {path.relative_to(ROOT).parts[0] for path in tracked("*/*")}
    assert {name for name in top if not name.startswith(".")} == {name for name in folders if "/" not in name}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short(page: Path) -> None:
    """At most 150 lines of at most 160 characters; tables, images and what a program prints are as wide as they are."""
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 150
    lines = [line for line in prose(page).splitlines() if not line.lstrip().startswith(("|", "<img", "!["))]
    assert [line for line in lines if len(line) > 160] == []


def test_the_pages_that_code_names_exist() -> None:
    named_in = {
        path: re.findall(r"\bdocs/[\w/.-]+\.(?:md|ipynb)\b", path.read_text(encoding="utf-8"))
        for pattern in ("*.py", "*.yaml", "*.toml", "*.txt", "*.html", "*.jinja", "Makefile", "Dockerfile")
        for path in tracked(pattern)
    }
    names = [(name, str(path.relative_to(ROOT))) for path, pages in named_in.items() for name in pages]
    assert len(names) > 50
    assert [(name, where) for name, where in names if not (ROOT / name).is_file()] == []


def named(tree: list[str]) -> list[str]:
    """Return the folders that a tree names; those of an indented line lie in the last folder that is not indented."""
    folders, parent = [], ""
    for line in tree:
        names = re.findall(r"(\S+)/(?=\s|$)", line if line.startswith(" ") else line.split()[0])
        if line.startswith(" "):
            folders += [f"{parent}/{name}" for name in names]
        else:
            parent = names[0]
            folders.append(parent)
    return folders


def test_the_citation_names_the_package_as_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert [citation[key] for key in ("title", "version", "license")] == [
        project[key] for key in ("name", "version", "license")
    ]
    assert [author["name"] for author in citation["authors"]] == ["The refusal-probes authors"]


def test_the_dockerfile_copies_every_package() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    copied = re.findall(r"^COPY (\w+) \./(\w+)$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    assert sorted(source for source, _ in copied) == sorted(packages)
    assert all(source == target for source, target in copied)
    let_through = re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), flags=re.M)
    assert {*packages, "LICENSE"} == set(let_through)


def test_the_example_of_a_workflow_is_one_and_its_conditions_are_known() -> None:
    text = (ROOT / "docs" / "compare.md").read_text()
    workflow = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, flags=re.S)[-1])
    steps = workflow["jobs"]["compare"]["steps"]
    commands = "\n".join(step.get("run", "") for step in steps)
    conditions = re.findall(r"--fail-if '([^']+)'", commands)
    assert sum(len(parse_all(condition)) for condition in conditions) == len(conditions) == 3  # each is parsed
    assert "set -o pipefail" in commands  # else tee hides the exit code


# -- figures that stand on several pages -------------------------------------------------------------------------------

WORDS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 29: "twenty-nine"}


def rows_under(heading: str, page: Path) -> int:
    """Count the rows of the first table under a heading."""
    table = page.read_text(encoding="utf-8").partition(f"\n### {heading}\n")[2].partition("\n| ")[2]
    lines = table.partition("\n\n")[0].splitlines()
    return len(lines) - 2  # the rest of the head, and the line under it


def unseen(figure: str) -> int:
    """Return a figure of the rules on models that are not in this repository, rounded."""
    found = re.search(rf"they do worse \([^)]*{figure} ([\d.]+)", RESULTS.read_text(encoding="utf-8"))
    assert found is not None, figure
    return round(float(found[1]))


def result(row: str) -> int:
    """Return the first percentage of a row of the benchmarks' results, rounded."""
    found = re.search(
        rf"^\| [^|]*{re.escape(row)}[^|]*\| ([\d.]+) %", RESULTS.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None, row
    return round(float(found[1]))


def prompts_in(name: str) -> int:
    return len((ROOT / "configs" / "prompts" / name).read_text(encoding="utf-8").splitlines())


RESULTS = ROOT / "benchmarks" / "RESULTS.md"
ORGANISMS = ROOT / "docs" / "organisms.md"
FIGURES = {
    "organisms": (
        lambda: len([path for path in (ROOT / "organisms" / "zoo").iterdir() if (path / "truth.json").is_file()]),
        {"README.md": r"([\w-]+) organisms have a planted", "docs/README.md": r"([\w-]+) models with planted truth",
         "docs/organisms.md": r"([\w-]+) organisms lie in"},
    ),
    "built to fool": (
        lambda: rows_under("Built to fool it", ORGANISMS),
        {"README.md": r"mechanism, (\w+) built to fool", "docs/README.md": r"(\w+) of them built to fool"},
    ),
    "core prompts": (
        lambda: prompts_in("core.jsonl"),
        {page: r"([\d,]+) (?:English prompts|prompts of `configs/prompts/core|shipped prompts)"
         for page in ("docs/prompts.md", "docs/own-model.md", "docs/real-model.md")},
    ),
    "prompts by category": (lambda: prompts_in("categories.jsonl"), {"docs/prompts.md": r"holds (2,\d+) prompts"}),
    "models": (
        lambda: len(tracked("configs/models/*.yaml")), {"README.md": r"settings for (\w+) models"}
    ),
    "public sets": (
        lambda: len(yaml.safe_load((ROOT / "configs/suites/public.yaml").read_text())["datasets"]),
        {"docs/evaluate.md": r"`public` \| (\w+) \[public sets"},
    ),
    "the judge on XSTest": (
        lambda: result("XSTest, complied or not"),
        {"docs/judge.md": r"(\d+) % on compliance or not"},
    ),
    "the judge on models that it was not written for": (
        lambda: unseen("XSTest"),
        {"README.md": r"with people on (\d+) % of XSTest", "docs/judge.md": r"not in this repository it was (\d+) %"},
    ),
    "refusals and abstentions of models that it was not written for": (
        lambda: unseen("refuse against abstain"),
        {"README.md": r"abstentions in (\d+) %"},
    ),
    "two people on XSTest": (
        lambda: result("two annotators agree"),
        {"README.md": r"agree on (\d+) %\)", "docs/judge.md": r"two people agree on (\d+) %"},
    ),
    "refusals and abstentions": (
        lambda: result("refuse or abstain"),
        {"docs/judge.md": r"abstentions are separated in (\d+) %"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FIGURES)
def test_a_figure_is_the_same_wherever_it_stands(what: str) -> None:
    source, places = FIGURES[what]
    expected = source()
    for page, pattern in places.items():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        found = re.search(pattern, text)
        assert found is not None, (page, pattern)
        said = found[1].lower().replace(",", "")
        assert said in (str(expected), WORDS.get(expected)), (page, said, expected)
