"""Hook of mkdocs: one site of README.md, the pages of docs/, and the files of the repository that they link to.

Reads the Markdown as the repository shows it. Writes nothing there: where a file has another place on the site, links
to it are changed while a page is built. The menu is the lists of docs/README.md; the notebook becomes a page.
"""

import json
import re
from html import escape
from pathlib import Path
from posixpath import relpath

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RENAMED = {ROOT / "README.md": "index.md", DOCS / "README.md": "pages.md"}
LINK = re.compile(r"(\]\(|\b(?:src|href)=\")([^)\"\s#]*)(#[^)\"\s]*)?(?=[)\"])")
ENTRY = re.compile(r"^- \[(.+?)\]\(((?!\.\.).+?)\)", re.MULTILINE)  # of the menu, but for the README, its home
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


class Examples(griffe.Extension):
    """Shows the examples in docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


def on_config(config: MkDocsConfig) -> None:
    """Make the menu out of docs/README.md: a part for each heading, an entry for each link."""
    parts = (DOCS / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    menu = [
        {part.partition("\n")[0]: [{title: _place(DOCS / path)} for title, path in _entries(part)]} for part in parts
    ]
    config.nav = [{"Home": "index.md"}, {"All pages": "pages.md"}, *menu]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/ and is linked to, and pages that have another name on the site."""
    files.remove(files.src_uris["README.md"])
    waiting = [ROOT / "README.md", *DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        place = _place(path)
        if path.suffix == ".ipynb":
            files.append(File.generated(config, place, content=_notebook(path)))
        elif place not in files.src_uris:
            files.append(File.generated(config, place, abs_src_path=str(path)))
        new = _targets(path) - seen
        seen |= new
        waiting += new
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the links to files that have another place on the site."""
    source = _source(page.file.src_uri)

    def placed(link: re.Match[str]) -> str:
        opening, path, anchor = link[1], link[2], link[3] or ""
        if not path or ":" in path:
            return link[0]
        target = (source.parent / path).resolve()
        place = _place(target)
        if place not in files.src_uris:
            raise PluginError(f"{source.relative_to(ROOT)}: there is no {path}")
        if opening != "](":  # of HTML, which mkdocs leaves as it is
            place = files.src_uris[place].url
        return opening + relpath(place, str(Path(page.file.src_uri).parent)) + anchor

    parts = CODE.split(markdown)
    text = "".join(part if i % 2 else LINK.sub(placed, part) for i, part in enumerate(parts))
    return text + _names() if page.file.src_uri == "reference.md" else text


def _entries(part: str) -> list[tuple[str, str]]:
    return [
        (title, path)
        for title, path in re.findall(r"^- \[(.+?)\]\((.+?)\)", part, re.MULTILINE)
        if path != "../README.md"
    ]


def _names() -> str:
    """Return a directive of mkdocstrings for each name of `import refusal`."""
    stub = (ROOT / "refusal" / "__init__.pyi").read_text(encoding="utf-8")
    return "".join(f"\n\n::: refusal.{name}" for name in sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE)))


def _place(path: Path) -> str:
    """Return where a file of the repository lies on the site."""
    if path in RENAMED:
        return RENAMED[path]
    if path.suffix == ".ipynb":
        path = path.with_suffix(".md")
    return str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else f"repository/{path.relative_to(ROOT)}"


def _source(place: str) -> Path:
    """Return the file of the repository that lies at a place of the site."""
    for path, renamed in RENAMED.items():
        if renamed == place:
            return path
    return ROOT / place.removeprefix("repository/") if place.startswith("repository/") else DOCS / place


def _targets(page: Path) -> set[Path]:
    """Return the files that a page links to."""
    if page.suffix != ".md":
        return set()
    text = "".join(CODE.split(page.read_text(encoding="utf-8"))[::2])
    paths = {path for _, path, _ in LINK.findall(text) if path and ":" not in path}
    return {target for path in paths if (target := (page.parent / path).resolve()).is_file()}


def _notebook(path: Path) -> str:
    """Return a notebook as Markdown: text, code, and what each cell showed."""
    parts = [f'<a href="{path.name}" download>Download this page as a notebook</a>']
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_output(output) for output in cell.get("outputs", [])]
    title = next(i for i, part in enumerate(parts) if part.startswith("# "))
    parts[0], parts[title] = parts[title], parts[0]
    return "\n\n".join(parts)


def _output(output: dict) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="a chart of the cell above" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "text/html" in data:
        table = STYLE.sub("", "".join(data["text/html"])).replace(' border="1" class="dataframe"', "")
        return "\n".join(line.strip() for line in table.splitlines() if line.strip())
    return f'<pre class="output">{escape("".join(output.get("text", data.get("text/plain", ""))))}</pre>'
