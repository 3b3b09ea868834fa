"""`refusal extract` as its user meets it: any prompts, any locus, several processes, and what is said on the way."""

import json
from pathlib import Path

import pytest

from extract.store.activation_store import ActivationStore

WORDS = ("fix", "move", "open", "hide", "lock", "clean")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    rows = [
        {"id": f"p{i}", "text": f"how do i {word} the door at home?", "label": "benign", "trigger": word}
        for i, word in enumerate(WORDS)
    ]
    rows[2]["trigger"] = "kill"
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def arguments(prompts: Path, out: Path, *more: str) -> list[str]:
    return ["extract", "configs/quickstart.yaml", "--set", f"prompts.path={prompts}", "--out", str(out), *more]


def test_one_label_is_enough_and_what_a_reader_must_know_is_said(prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    chosen = ["--set", "extract.site=resid_mid", "--set", "extract.response_tokens=2", "--set", "extract.layers=[1,3]"]
    code, _, err = cli(*arguments(prompts, tmp_path / "run", *chosen))
    assert code == 0, err
    assert "1 of 6 prompts: the trigger is not a word of the last user turn (no trigger_last), for example 'p2'" in (
        " ".join(err.split())
    )
    with ActivationStore(tmp_path / "run" / "activations.h5") as store:
        assert (store.site, store.layers) == ("resid_mid", (1, 3))
        assert store.positions[-3:] == ("trigger_last", "response_1", "response_2")
        assert store.present[-3].tolist() == [True, True, False, True, True, True]
        assert [len(said) for said in store.responses] == [2] * 6
    assert cli("store", "verify", str(tmp_path / "run" / "activations.h5"))[0] == 0


@pytest.mark.parametrize("fault", ["lost", "cut", "other numbers"])
def test_a_shard_that_is_gone_or_damaged_is_made_again_alone(fault: str, prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    run = tmp_path / "run"
    two_rows = ["--set", "extract.rows_per_shard=2"]
    assert cli(*arguments(prompts, run, *two_rows))[0] == 0
    store, shards = run / "activations.h5", run / "activations.h5.shards"
    shard, before = shards / "00001-of-00003.h5", store.read_bytes()
    kept = {file: file.stat().st_mtime_ns for file in shards.glob("*.h5") if file != shard}
    whole = shard.read_bytes()
    if fault == "lost":
        shard.unlink()
    elif fault == "cut":
        shard.write_bytes(whole[: len(whole) // 2])
    else:
        shard.write_bytes((shards / "00000-of-00003.h5").read_bytes())
    states = {state["name"]: state["state"] for state in json.loads(cli("status", str(run), "--json")[1])["stages"]}
    assert states["extract"] == "stale"
    code, _, err = cli("store", "info", str(store))
    assert code == 2
    assert "run refusal extract again" in " ".join(err.split())
    if fault != "lost":  # the message names the file to delete; then the command that it asks for works
        assert str(shard) in "".join(err.split())
        shard.unlink()
    code, _, err = cli(*arguments(prompts, run, *two_rows))
    assert code == 0, err
    assert "nothing to do" not in err
    assert store.read_bytes() == before
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert cli("store", "verify", str(store))[0] == 0
    assert "nothing to do" in cli(*arguments(prompts, run, *two_rows))[2]


def test_a_dry_run_counts_what_will_be_stored(prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    def stored(*more: str) -> dict[str, int]:
        code, out, err = cli(*arguments(prompts, tmp_path / "run", "--dry-run", "--json", *more))
        assert code == 0, err
        return json.loads(out)

    two = ["--set", "extract.positions=[inst_last,post_last]", "--set", "extract.layers=[0]"]
    assert stored(*two)["independent groups"] == {"benign": 6}  # type: ignore[comparison-overlap]
    shown = cli(*arguments(prompts, tmp_path / "run", "--dry-run"))[1]
    assert "6 (6 benign of 6 independent groups), " in " ".join(shown.split())
    few, more = stored(*two), stored(*two, "--set", "extract.response_tokens=3")
    assert few["activations on disk, bytes"] * 5 == more["activations on disk, bytes"] * 2
    assert (few["generated tokens, at most"], more["generated tokens, at most"]) == (0, 18)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["extract.site=resid_middle", "model.backend=hoks", "extract.positions=[post_lst]"])
def test_a_mistaken_choice_is_one_line(prompts: Path, tmp_path: Path, key: str, cli) -> None:  # type: ignore[no-untyped-def]
    code, _, err = cli(*arguments(prompts, tmp_path / "run", "--set", key))
    assert code == 2
    said = err.strip().splitlines()[-1]  # after what there was to note about the prompts
    assert said.startswith("refusal: ")
    assert key.partition("=")[2].strip("[]") in said
    assert "Traceback" not in err


def test_prompts_longer_than_the_context_are_named_and_nothing_is_written(prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    rows[4]["text"] = "how do i lock the door? " * 200
    prompts.write_text("\n".join(map(json.dumps, rows)))
    code, _, err = cli(*arguments(prompts, tmp_path / "run"))
    assert code == 2
    assert "1 of 6 prompts are longer than the model's context, 512 tokens; 'p4' has" in err
    assert not list((tmp_path / "run").glob("*.h5"))
