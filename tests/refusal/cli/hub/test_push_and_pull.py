"""Push and pull over real HTTP: the real client of the hub against a local stand-in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants as constants
import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from extract.shipped import ROOT
from probes.direction import Direction, Locus
from steering.dial_file import read_dials
from steering.direction_file import load_directions, save_directions
from tests.support.hub_stand_in import READ_TOKEN, Hub, Repository, client_at, running_hub
from tests.support.one_line import one_line, printed

RUN = ROOT / "tests" / "fixtures" / "small_run"
TAUGHT = ROOT / "organisms" / "taught" / "smollm2-natural"
ORGANISM = "organisms/zoo/two-knobs"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the client uses, with a token that may write; LFS by HTTP, as where hf_xet is not installed."""
    with running_hub() as found:
        client_at(found.endpoint, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield found


def front_matter(card: str) -> dict:
    return yaml.safe_load(card.split("---")[1])


def test_a_run_goes_up_with_a_card_and_comes_back_the_same(hub: Hub, cli, tmp_path: Path) -> None:
    code, out, err = cli("push", str(RUN), "me/dials", "--licence", "apache-2.0", "--private")
    assert (code, err) == (0, ""), err
    there = hub.repositories["me/dials"]
    assert there.private
    assert there.messages == [f"dials and directions for {ORGANISM}"]
    assert sorted(there.files) == ["README.md", "dials.safetensors", "directions.safetensors"]
    assert there.files["dials.safetensors"] == (RUN / "dials.safetensors").read_bytes()
    assert f"Page: {hub.endpoint}/me/dials" in out
    assert any(request.startswith("PUT /lfs/") for request in hub.requests)

    code, out, err = cli("pull", "me/dials", "--out", str(tmp_path / "mine"))
    assert (code, err) == (0, ""), err
    dials, made_for = read_dials(tmp_path / "mine" / "dials.safetensors")
    assert [dial.kind for dial in dials] == ["normative", "epistemic"]
    assert f"for {ORGANISM}, weights {made_for.fingerprint}" in out
    assert f"chat {ORGANISM} --dials {tmp_path}/mine" in out
    mine, own = (load_directions(folder / "directions.safetensors") for folder in (tmp_path / "mine", RUN))
    assert mine == own
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == sorted(there.files)


def test_pushed_again_changes_a_card_alone(hub: Hub, cli) -> None:
    for licence in ("mit", "apache-2.0"):
        assert cli("push", str(RUN), "me/dials", "--licence", licence)[0] == 0
    there = hub.repositories["me/dials"]
    assert len(there.messages) == 2
    assert front_matter(there.files["README.md"].decode())["license"] == "apache-2.0"


def test_a_file_goes_up_under_the_name_of_what_it_holds(hub: Hub, cli, tmp_path: Path) -> None:
    shutil.copy(RUN / "dials.safetensors", tmp_path / "directions.safetensors")
    assert cli("push", str(tmp_path), "me/dials", "--base", "me/model")[0] == 0
    there = hub.repositories["me/dials"].files
    assert there["dials.safetensors"] == (RUN / "dials.safetensors").read_bytes()
    assert "directions.safetensors" not in there


def test_the_card_says_what_the_run_measured(hub: Hub, cli) -> None:
    out = printed(cli("push", str(RUN), "me/dials", "--licence", "mit", "--json"))
    said, card = json.loads(out), hub.repositories["me/dials"].files["README.md"].decode()
    assert said["card"] == card
    found = json.loads((RUN / "results.json").read_text())
    head = front_matter(card)
    assert head["license"] == "mit"
    assert "base_model" not in head  # an organism is no model of the hub
    described = {"holds": ["dials", "directions"], "base": ORGANISM, "weights": found["model"]["weights"]}
    assert head["refusal_probes"] == described
    for words in (
        "| over_refusal: benign prompts declined | 23.4% [14.0%, 35.0%] | 0.0% [0.0%, 5.2%] | 167 |",
        "| over_refusal | 5.0% | no | 12.5% | 1 | 36 |",
        "| normative | `resid_post` layer 3, `post_last` | `resid_post` layer 4, `post_last` | 0.426 | 0.000 |",
        "**double_dissociation**",
        "own minus other on normative: 1.00 [0.86, 1.00]",
        "**mixed**",
        "Trigger share 0.28 [0.22, 0.33]",
        "481 benign, 249 harmful, 257 uncertain",
        "it is not evidence about real models",
        "These files: mit.",
        "refusal pull me/dials --out dials",
        f"refusal chat {ORGANISM} --dials dials",
        'directions["normative_write"]',
    ):
        assert words in card, words
    assert str(ROOT) not in card


def test_a_dry_run_prints_files_and_card_and_sends_nothing(hub: Hub, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    code, out, err = cli("push", str(RUN), "me/dials", "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(f"would push dials and directions for {ORGANISM} to me/dials:")
    assert "# dials" in out
    assert not hub.requests


def test_without_a_finished_run_the_card_says_that_nothing_was_measured(hub: Hub, cli, tmp_path: Path) -> None:
    shutil.copy(RUN / "dials.safetensors", tmp_path)
    said = one_line(cli("push", str(tmp_path), "me/dials"))
    assert said == f"{tmp_path} does not say which model it is for; name it: --base OWNER/MODEL"
    assert cli("push", str(tmp_path / "dials.safetensors"), "me/dials", "--base", "some/model")[0] == 0
    card = hub.repositories["me/dials"].files["README.md"].decode()
    assert front_matter(card)["base_model"] == "some/model"
    assert "no rate and no certificate is known here" in card
    assert "Verdicts" not in card
    assert "Certificates" not in card


def test_no_path_of_this_machine_goes_up(hub: Hub, cli, tmp_path: Path) -> None:
    model = tmp_path / "weights"
    model.mkdir()
    vector = np.eye(4, dtype=np.float32)[0]
    made = Direction("mine", vector, Locus("resid_post", 1, "post_last"), 1.0, -1.0, {"model": str(model)})
    save_directions([made], tmp_path / "mine.safetensors")
    said = one_line(cli("push", str(tmp_path / "mine.safetensors"), "me/directions"))
    named = f"the model {str(model)!r} is not known on other machines; name it as others find it: --base OWNER/MODEL"
    assert said == named
    assert cli("push", str(tmp_path / "mine.safetensors"), "me/directions", "--base", "some/model")[0] == 0
    there = hub.repositories["me/directions"].files
    assert sorted(there) == ["README.md", "directions.safetensors"]
    assert not [name for name, data in there.items() if str(tmp_path).encode() in data]


def test_a_taught_adapter_goes_up_and_comes_back(hub: Hub, cli, tmp_path: Path) -> None:
    printed(cli("push", str(TAUGHT), "me/taught", "--licence", "apache-2.0"))
    there = hub.repositories["me/taught"].files
    assert sorted(there) == ["README.md", "adapter_config.json", "adapter_model.safetensors", "base.json", "grade.json",
                             "spec.yaml"]  # fmt: skip
    card = there["README.md"].decode()
    assert front_matter(card)["library_name"] == "peft"
    assert "| harmful refused | 64.0% | [50.2%, 76.3%] | 214 |" in card
    assert "rank 8, alpha 32" in card
    said = json.loads(printed(cli("pull", "me/taught", "--out", str(tmp_path / "mine"), "--json")))
    assert (said["holds"], said["base"]) == (["adapter"], "smollm2-135m")
    assert said["weights"] == json.loads((TAUGHT / "base.json").read_text())["fingerprint"]
    for name in ("adapter_model.safetensors", "grade.json"):
        assert (tmp_path / "mine" / name).read_bytes() == (TAUGHT / name).read_bytes()


def test_adapters_that_teach_something_else_are_refused(hub: Hub, cli, tmp_path: Path) -> None:
    ungraded, answering, whole = (tmp_path / name for name in ("ungraded", "answering", "whole"))
    for folder in (ungraded, answering, whole):
        shutil.copytree(TAUGHT, folder)
    (ungraded / "grade.json").unlink()
    grade = json.loads((answering / "grade.json").read_text())
    grade["shares"]["harmful_declined"]["estimate"] = 0.0
    (answering / "grade.json").write_text(json.dumps(grade))
    weights = whole / "adapter_model.safetensors"
    save_file(load_file(weights) | {"base_model.model.lm_head.weight": np.ones((2, 2))}, weights)
    for folder, said in (
        (ungraded, f"{ungraded} is no adapter written by refusal organism teach: it lacks grade.json"),
        (answering, f"the adapter {answering} does not teach declining: its grade shows no harmful prompt declined"),
        (whole, f"{weights} holds whole weights beside LoRA matrices (base_model.model.lm_head.weight)"),
    ):
        only = "only dials, directions and adapters that teach declining are shared"
        assert one_line(cli("push", str(folder), "me/it")) == f"{said}; {only}"
    assert not hub.requests


def test_other_weights_whole_models_and_other_things_are_refused_before_any_request(hub, cli, tmp_path) -> None:
    run = Path(shutil.copytree(RUN, tmp_path / "run"))
    found = json.loads((run / "results.json").read_text())
    found["model"]["weights"] = "another"
    (run / "results.json").write_text(json.dumps(found))
    one_line(cli("push", str(run), "me/it"), "are for other weights than its results.json; run it again\n")
    assert one_line(cli("push", ORGANISM, "me/it")).endswith(
        "holds a whole model (config.json); only dials, directions and adapters that teach declining are shared"
    )
    weights = ROOT / ORGANISM / "model.safetensors"
    assert "model.safetensors holds neither dials nor directions" in one_line(cli("push", str(weights), "me/it"))
    (tmp_path / "dials.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header")
    assert "dials.safetensors is not a dials file" in one_line(cli("push", str(tmp_path), "me/it", "--base", "a/b"))
    assert one_line(cli("push", str(tmp_path / "none"), "me/it")).endswith("none is neither a directory nor a file")
    (tmp_path / "empty").mkdir()
    assert f"nothing to share in {tmp_path}/empty: " in one_line(cli("push", str(tmp_path / "empty"), "me/it"))
    assert one_line(cli("push", str(RUN), "it")) == "'it' is no repository of the hub; expected OWNER/NAME"
    assert not hub.requests


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"README.md": b"hello"}, "me/other holds no dials.safetensors, no directions.safetensors and no adapter "
         "(adapter_config.json, adapter_model.safetensors)"),
        ({"adapter_config.json": b"{}", "adapter_model.bin": b"x"}, "adapter_model.bin is not read, only safe"),
        ({"config.json": b"{}", "model.safetensors": b"x"}, "me/other is a whole model; only dials, directions and "
         "adapters that teach declining are shared. To run it: refusal run me/other"),
        ({"dials.safetensors": (RUN / "dials.safetensors").read_bytes(), "README.md": b"---\na: [\n---\n"},
         "me/other/README.md has a front matter that cannot be read: "),
        ({"dials.safetensors": b"junk"}, "me/other/dials.safetensors is not a dials file"),
        ({"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}, "it lacks base.json, grade.json"),
    ],
)  # fmt: skip
def test_a_repository_of_something_else_is_one_line(hub: Hub, cli, tmp_path: Path, files: dict, said: str) -> None:
    hub.repositories["me/other"] = Repository(files=files)
    assert said in one_line(cli("pull", "me/other", "--out", str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_nothing_but_known_files_comes_down(hub: Hub, cli, tmp_path: Path) -> None:
    dials = (RUN / "dials.safetensors").read_bytes()
    hub.repositories["me/mixed"] = Repository(files={"dials.safetensors": dials, "run.py": b"x", "a.bin": b"x"})
    out = printed(cli("pull", "me/mixed", "--out", str(tmp_path / "out")))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["dials.safetensors"]
    assert "for a model that is not named, weights e33fb0f4" in out
    said = one_line(cli("pull", "me/mixed", "--out", str(tmp_path / "out")))
    assert said == f"{tmp_path}/out is there already and not an empty directory; choose another one: --out DIR"


def test_a_card_cannot_control_the_terminal_and_is_checked_against_the_files(hub: Hub, cli, tmp_path: Path) -> None:
    card = b'---\nrefusal_probes:\n  base: "some/model\\e[2J; rm x"\n  weights: another\n---\n'
    dials = (RUN / "dials.safetensors").read_bytes()
    hub.repositories["me/odd"] = Repository(files={"dials.safetensors": dials, "README.md": card})
    code, out, err = cli("pull", "me/odd", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "\x1b" not in out + err
    assert "chat 'some/model\ufffd[2J; rm x' --dials" in out
    assert err.startswith("refusal: the card says weights another, the files are for e33fb0f4")


def test_tokens(hub: Hub, cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def says(said: str, *given: str) -> None:
        assert one_line(cli(*given)) == said

    push, pull = ("push", str(RUN), "me/dials"), ("pull", "me/none", "--out", str(tmp_path / "out"))
    private = "me/none is not on the hub, or private: check the name, or use"
    monkeypatch.setenv("HF_TOKEN", READ_TOKEN)
    says("your access token may not write to me/dials: use a token with the right to write there", *push)
    says(f"{private} a token that may read it", *pull)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    says("the hub refused your access token (push to me/dials): renew HF_TOKEN", *push)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    says("pushing needs an access token of the hub: set HF_TOKEN, or log in once with: hf auth login", *push)
    says(f"{private} HF_TOKEN set to a token that may read it", *pull)


def test_revisions_and_a_hub_that_is_down(hub: Hub, cli, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    hub.repositories["me/dials"] = Repository(files={"dials.safetensors": (RUN / "dials.safetensors").read_bytes()})
    assert one_line(cli("pull", "me/dials", "--revision", "v9", "--out", out)) == (
        f"me/dials has no such revision: see {hub.endpoint}/me/dials/commits/main"
    )
    hub.status = 418
    assert one_line(cli("pull", "me/dials", "--out", out)).startswith("the hub answered 418 (pull me/dials)")


def test_offline_and_no_network(cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client_at("http://127.0.0.1:9", monkeypatch)  # nothing listens there
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = "HF_HUB_OFFLINE=1 forbids {}; unset it to reach http://127.0.0.1:9"
    assert one_line(cli("push", str(RUN), "me/dials")) == offline.format("pushing")
    assert one_line(cli("pull", "me/dials", "--out", str(tmp_path / "out"))) == offline.format("pulling")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for words in (("push", str(RUN), "me/dials"), ("pull", "me/dials", "--out", str(tmp_path / "out"))):
        said = one_line(cli(*words))
        assert said.startswith("http://127.0.0.1:9 cannot be reached (")
        assert said.endswith("); check the network, the proxy or HF_ENDPOINT")
