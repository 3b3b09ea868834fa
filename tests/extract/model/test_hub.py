"""Errors of the hub become one line, over real HTTP: a local server answers as the hub does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from extract.model.source import packaged_model, resolve
from extract.shipped import CACHE_VARIABLE
from tests.support.local_http import QuietHandler, serving
from tests.support.one_line import refused

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = {  # status, X-Error-Code, X-Error-Message
    "missing": (401, "RepoNotFound", "Repository not found"),
    "missing-for-a-token": (404, "RepoNotFound", "Repository not found"),
    "gated": (401, "GatedRepo", "Access to model owner/gated is restricted and you must be authenticated."),
    "gated-denied": (403, "GatedRepo", "You are not in the authorized list."),
    "bad-token": (401, "", "Invalid credentials in Authorization header"),
    "weak-token": (403, "", "Forbidden: your token lacks the right to read"),
    "no-revision": (404, "RevisionNotFound", "Invalid rev id: v9"),
    "disabled": (403, "", "Access to this resource is disabled."),
    "busy": (429, "", "Too many requests"),
    "down": (503, "", ""),
    "teapot": (418, "", ""),
    "no-config": (404, "EntryNotFound", "Entry not found"),
}
OPEN_EACH = """
import json, sys, time
time.sleep = lambda seconds: None  # the hub's client waits between its retries
from extract.errors import UserError
from extract.model.loading import load_model
from extract.model.loading_options import quiet_libraries
quiet_libraries()  # as every command does
said = {}
for name in sys.argv[1:]:
    try:
        load_model(name, revision="v9" if "revision" in name else None, device="cpu")
    except UserError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


class Hub(QuietHandler):
    """Answers every path with what the model's name asks for."""

    def do_GET(self) -> None:  # noqa: N802
        parts = self.path.replace("/api/models", "").split("/")
        status, code, message = ANSWERS.get(parts[2] if len(parts) > 2 else "", (404, "RepoNotFound", ""))
        self.send(status, headers={"X-Error-Code": code, "X-Error-Message": message})

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving(Hub) as address:
        yield address


def opened(endpoint: str, home: Path, names: list[str], token: str | None = None, offline: bool = False) -> dict:
    """Open models in a process of its own, which has no other hub, cache or token."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": str(int(offline)), "HF_HUB_DISABLE_TELEMETRY": "1",
                    "HF_HOME": str(home), "PYTHONPATH": str(ROOT), "no_proxy": "127.0.0.1"}  # fmt: skip
    environment |= {"HF_TOKEN": token} if token else {}
    command = [sys.executable, "-c", OPEN_EACH, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True, cwd=home)
    said = json.loads(done.stdout.splitlines()[-1])
    assert sorted(said) == sorted(names)
    assert not [message for message in said.values() if "\n" in message]
    assert "Retrying" not in done.stderr  # the one line says it
    return said


@pytest.mark.slow
def test_answers_without_a_token(endpoint: str, tmp_path: Path) -> None:
    names = ["missing", "gated", "no-revision", "disabled", "busy", "down", "teapot", "no-config"]
    said = opened(endpoint, tmp_path, [*(f"owner/{name}" for name in names), "plainname"])
    assert said == {
        "plainname": "model not found: 'plainname' is neither a directory here nor a model on the hub (most are "
        "owner/name)",
        "owner/missing": "model not found: 'owner/missing' is no directory here, and not on the hub or private: check "
        "it, or use HF_TOKEN set to a token that may read it",
        "owner/gated": f"owner/gated is gated: accept its licence at {endpoint}/owner/gated and set HF_TOKEN to your "
        "access token",
        "owner/no-revision": f"owner/no-revision has no revision 'v9': see {endpoint}/owner/no-revision for what "
        "model.revision can be",
        "owner/disabled": "owner/disabled has been disabled on the hub: choose another model",
        "owner/busy": "the hub answered 429 when asked for owner/busy: it is busy or down, try again later",
        "owner/down": "the hub answered 503 when asked for owner/down: it is busy or down, try again later",
        "owner/teapot": f"the hub answered 418 when asked for owner/teapot: see {endpoint}/owner/teapot",
        "owner/no-config": "owner/no-config on the hub is not a loadable model: Unrecognized model in owner/no-config. "
        "Should have a `model_type` key in its config.json.",
    }


@pytest.mark.slow
def test_answers_to_a_token(endpoint: str, tmp_path: Path) -> None:
    names = ["missing-for-a-token", "gated", "gated-denied", "bad-token", "weak-token"]
    said = opened(endpoint, tmp_path, [f"owner/{name}" for name in names], token="hf_made_up_for_a_test")
    refused = "the hub refused your access token for owner/{}: renew HF_TOKEN (or unset it, for open models)"
    assert said == {
        "owner/missing-for-a-token": "model not found: 'owner/missing-for-a-token' is no directory here, and not on "
        "the hub or private: check it, or use a token that may read it",
        "owner/gated": refused.format("gated"),
        "owner/gated-denied": "owner/gated-denied is gated and your token's account has no access to it: ask for it at "
        f"{endpoint}/owner/gated-denied",
        "owner/bad-token": refused.format("bad-token"),
        "owner/weak-token": refused.format("weak-token"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("offline", [False, True])
def test_no_network(tmp_path: Path, offline: bool) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        said = opened(endpoint, tmp_path, ["owner/name", "gpt2"], offline=offline)
    if offline:
        assert said == {
            "owner/name": "owner/name is not in the local cache and HF_HUB_OFFLINE=1 forbids fetching it",
            "gpt2": "gpt2 is neither a directory here nor in the local cache and HF_HUB_OFFLINE=1 forbids fetching it",
        }
        return
    for name, message in said.items():
        assert message.startswith(f"{name} is not in the local cache and {endpoint} cannot be reached (")
        assert message.endswith("refused); check the network, the proxy or HF_ENDPOINT")


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
    refused(r"^the package 'two' holds no model: no GGUF file and no zip archive", packaged_model, "two")


@pytest.mark.parametrize("name", ["no-such-package-here", ""])
def test_a_package_that_is_not_installed(name: str) -> None:
    refused(rf"^the package '{name}' is not installed; install it with: pip install", resolve, f"package:{name}")


def test_a_cache_that_cannot_be_written(site: Path, tmp_path: Path) -> None:
    install(site, "three", {"config.json": CONFIG})
    (tmp_path / "cache").write_text("a file")
    refused(r"^the cache .*three-1.0 cannot be written: .*; set REFUSAL_CACHE to", packaged_model, "three")
