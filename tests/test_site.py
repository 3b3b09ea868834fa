"""The pages of docs/ become a site: every link and anchor of it leads somewhere, and a dead one ends the build."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import refusal
from extract.shipped import ROOT

pytestmark = pytest.mark.slow


class Links(HTMLParser):
    """Collects the anchors of a page, what it links to, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.loaded = {""}, list[str](), list[str]()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        self.links += [values[name] for name in ("href", "src") if name in values]
        if tag in ("script", "img", "link") and values.get("rel") != "canonical":
            self.loaded += [values.get("src") or values.get("href", "")]


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(root / "mkdocs.yml")]
    return subprocess.run([*command, "--site-dir", str(out)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Links]]:
    """Build the whole site; return its pages."""
    out = tmp_path_factory.mktemp("site")
    built = build(ROOT, out)
    assert built.returncode == 0, built.stderr[-3000:]
    yield {page: Links(page) for page in out.rglob("*.html")}
    shutil.rmtree(out)


def test_every_link_of_the_site_leads_somewhere(site: dict[Path, Links]) -> None:
    dead = []
    for page, found in site.items():
        for link in found.links if page.name != "404.html" else []:  # that page is shown at any depth
            parts = urlsplit(link)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if parts.scheme or link.startswith("data:"):
                continue
            if not target.exists() or (target in site and unquote(parts.fragment) not in site[target].anchors):
                dead.append(f"{page.name}: {link}")
    assert sum(len(found.links) for found in site.values()) > 5000
    assert dead == []


def test_pages_load_nothing_from_elsewhere(site: dict[Path, Links]) -> None:
    assert [url for found in site.values() for url in found.loaded if urlsplit(url).scheme in ("http", "https")] == []


def test_every_page_is_found_by_search(site: dict[Path, Links]) -> None:
    root = next(page.parent for page in site if page.name == "index.html" and (page.parent / "search").is_dir())
    index = json.loads((root / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")]
    assert len(pages) > 50
    assert {str(page.with_suffix(".html")) for page in pages if page.name != "README.md"} <= found


def test_the_reference_has_every_name_of_import_refusal(site: dict[Path, Links]) -> None:
    reference = next(found for page, found in site.items() if page.name == "reference.html")
    assert [name for name in refusal.__all__ if f"refusal.{name}" not in reference.anchors] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[here](../CHANGELOG.md) [this](#one-two)", None),
        ("[no page](none.md)", "there is no none.md"),
        ("[no file](../none.yaml)", "there is no ../none.yaml"),
        ('<img src="images/none.png">', "there is no images/none.png"),
        ("[no heading](#three)", "link '#three', but there is no such anchor on this page"),
        ("[no heading](../CHANGELOG.md#three)", "does not contain an anchor '#three'"),
    ],
)
def test_a_dead_link_ends_the_build(tmp_path: Path, text: str, complaint: str | None) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("mkdocs.yml", "docs/site.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "README.md").write_text("# Home\n", encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n", encoding="utf-8")
    (tmp_path / "docs" / "README.md").write_text(f"# One, two\n\n## Start\n\n{text}\n", encoding="utf-8")
    built = build(tmp_path, tmp_path / "out")
    assert (built.returncode == 0) == (complaint is None), built.stderr
    assert complaint is None or complaint in built.stderr
