"""What ships, as the docs and the command list it; what the wheel leaves out is taken whole and by checksum."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from extract import shipped
from extract.errors import UserError
from extract.model.adapter import find_adapter
from extract.model.source import locate
from extract.shipped import CACHE_VARIABLE, CHECKSUMS, ROOT, resolve_shipped
from organisms import listing
from organisms.listing import fetch, installed, shipped_organisms
from tests.support.local_http import QuietHandler, serving

XOR = Path("organisms/zoo/xor")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, where packages are installed from the wheel: without organisms, and in another folder."""
    (tmp_path / "site").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "site")
    monkeypatch.setattr(listing, "ROOT", tmp_path / "site")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "cache"


def test_the_manifest_names_every_file_with_its_checksum() -> None:
    listed = dict(line.split()[::-1] for line in CHECKSUMS.read_text().splitlines())
    folders = [ROOT / "organisms" / "zoo", ROOT / "organisms" / "taught"]
    here = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert set(listed) == here
    for name, digest in listed.items():
        assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == digest, name


def test_a_missing_one_is_a_line_with_the_command_wherever_it_is_named(cache) -> None:
    for name in ("xor", "organisms/zoo/xor", "organisms/zoo/xor/prompts.jsonl"):
        with pytest.raises(UserError, match=r"^organisms/zoo/xor\S* is not installed; .*refusal organism get xor$"):
            resolve_shipped(Path(name))
    with pytest.raises(UserError, match="refusal organism get xor"):
        locate(str(XOR))
    with pytest.raises(UserError, match="refusal organism get smollm2-natural"):
        find_adapter("organisms/taught/smollm2-natural")
    assert resolve_shipped(XOR / "another.txt") == XOR / "another.txt"  # no organism's file
    assert {one.name: one.megabytes for one in shipped_organisms()}["xor"] is None


def test_it_is_taken_from_a_clone_and_then_found_by_its_name(cache) -> None:
    assert installed("xor") is None
    assert fetch("xor", str(ROOT)) == cache / XOR == installed("xor") == locate(str(XOR))
    assert resolve_shipped(XOR / "prompts.jsonl").read_bytes() == (ROOT / XOR / "prompts.jsonl").read_bytes()
    assert locate("xor") == cache / XOR
    assert resolve_shipped(Path("xor/prompts.jsonl")) == cache / XOR / "prompts.jsonl"
    assert sorted(path.name for path in cache.rglob("*/zoo/*")) == ["xor"]
    assert {one.name: one.megabytes for one in shipped_organisms()}["xor"] == 2.8


@pytest.fixture
def clone(tmp_path) -> Path:
    shutil.copytree(ROOT / XOR, tmp_path / "clone" / XOR)
    return tmp_path / "clone"


@pytest.fixture
def server(clone) -> Iterator[str]:
    class Files(QuietHandler, SimpleHTTPRequestHandler):
        """Serves files, and logs nothing."""

    with serving(partial(Files, directory=str(clone))) as address:
        yield f"{address}/"


def test_it_is_taken_from_a_url_or_a_hub_repository(cache, server, clone, monkeypatch) -> None:
    fetch("xor", server)
    assert installed("xor") == cache / XOR
    shutil.rmtree(cache)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repository, path: str(clone / path))
    fetch("xor", "owner/name")
    assert installed("xor") == cache / XOR


def test_a_damaged_or_absent_file_leaves_nothing_and_keeps_what_was_there(cache, clone, server) -> None:
    with (clone / XOR / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    for source in (str(clone), server):
        with pytest.raises(UserError, match=r"xor/model.safetensors of \S+ is not the file of this version"):
            fetch("xor", source)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    fetch("xor", str(ROOT))
    (clone / XOR / "spec.yaml").unlink()
    with pytest.raises(UserError):
        fetch("xor", str(clone))
    assert installed("xor") == cache / XOR
    (cache / XOR / "spec.yaml").write_text("cut")
    assert installed("xor") is None  # so that `get` takes it again
    fetch("xor", str(ROOT))
    assert installed("xor") == cache / XOR


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "no organism named 'nobody'; choose from asked-own-knob, "),
        (["xor"], "where xor is to be taken from is not given; give --from DIR|URL|OWNER/NAME, or --build"),
        (["xor", "--from", "./nowhere"], "no folder ./nowhere; give a clone's folder, the URL of one, or a hub"),
        (["xor", "--from", "."], ". does not give organisms/zoo/xor/README.md: "),
        (["xor", "--from", "http://127.0.0.1:9/"], "http://127.0.0.1:9/ does not give organisms/zoo/xor/README.md: "),
        (["xor", "--from", "owner/name"], "owner/name does not give organisms/zoo/xor/README.md: "),
    ],
)
def test_mistakes_are_one_line(cache, cli, arguments, message) -> None:
    code, _, err = cli("organism", "get", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"refusal: {message}")


def test_the_command(cache, cli, monkeypatch) -> None:
    assert cli("organism", "get", "xor", "--from", str(ROOT))[:2] == (0, f"{cache / XOR}\n")
    assert json.loads(cli("organism", "get", "xor", "--json")[1]) == {"name": "xor", "directory": str(cache / XOR)}
    built: list[tuple[str, Path]] = []
    for command in ("organism_build", "organism_teach"):
        monkeypatch.setattr(f"refusal.cli.organism.{command}", lambda name, out, as_json: built.append((name, out)))
    for name, kind in (("late", "zoo"), ("smollm2-natural", "taught")):
        assert cli("organism", "get", name, "--build")[0] == 0
        assert built.pop() == (name, cache / "organisms" / kind / name)


def test_the_verdicts_are_those_of_the_documentation_and_the_command_lists_them(cli) -> None:
    page = (ROOT / "docs/organisms.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\| ([^|]*) \| ([^|]*) \|$", page, re.M)
    documented = {name: (two, word) for name, two, word in rows}
    listed = {one.name: one for one in shipped_organisms() if one.dissociation}
    assert set(listed) == set(documented)
    for name, (two, word) in documented.items():
        assert two.startswith(str(listed[name].dissociation).replace("_", " "))
        assert word.replace("-", "_").replace(" ", "_").startswith(str(listed[name].triggers))
    code, out, _ = cli("organism", "list")
    assert code == 0
    says = "Two orthogonal planted decisions; half the trigger verbs are refused even when benign."
    assert f"two-knobs\n  {says}\n" in out
    assert "  right verdicts: double dissociation, mixed\n  3.7 MB in organisms/zoo/two-knobs\n" in out
    found = json.loads(cli("organism", "list", "--json")[1])
    assert {one["name"]: one["dissociation"] for one in found if "taught" in one["directory"]} == {
        "smollm2-natural": None, "smollm2-shared-knob": "shared_knob", "smollm2-two-knobs": "double_dissociation",
    }  # fmt: skip
    assert all((ROOT / one["directory"]).is_dir() and one["megabytes"] > 0.5 for one in found)
