"""The cost printed by --dry-run is an upper limit of what a run does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.pipeline.cost import RunSize, steps, tokens
from experiments.pipeline.machine import A100
from experiments.pipeline.plan import estimate
from experiments.pipeline.stages import run
from experiments.responses.setting import PromptBatch
from experiments.run.config import load_config
from extract.progress import Reporter
from tests.support.make_small_run import some_prompts

SIZE = RunSize(
    read=100, read_tokens=20.0, prompts=100, test=35, harmful_test=10, prompt_tokens=20.0, n_layers=8, positions=3
)


def config(*overrides: str):  # type: ignore[no-untyped-def]
    return load_config(Path("configs/quickstart.yaml"), overrides)


def test_each_stage_adds_its_own() -> None:
    totals = [tokens(steps(config(), SIZE, until), SIZE, 24) for until in ("extract", "respond", "probe", "dissociate")]
    assert totals[0] == 100 * 20
    assert totals[1] == 100 * (20 + 24)  # plain completions need no activations
    assert totals == sorted(set(totals))


def test_readings_at_every_token_are_a_pass_a_test_prompt_up_to_the_most() -> None:
    def announced(test: int) -> int:
        listed = steps(config(), replace(SIZE, test=test), "report")
        return next(step.passes for step in listed if step.name == "readings at every token")

    assert [announced(300), announced(9_000)] == [300, 4_000]


def test_probes_take_their_time_at_every_locus_and_more_with_more_prompts() -> None:
    def lasting(read: int, *overrides: str) -> float:
        given = steps(config(*overrides), replace(SIZE, read=read), "probe")
        return sum(step.lasting for step in given if step.name == "read probes")

    assert lasting(300) - lasting(200) == pytest.approx(lasting(200) - lasting(100))
    assert 1.5 < lasting(1_840) / lasting(300) < 3
    assert lasting(100) == 2 * lasting(100, "extract.layers=[0, 1, 2, 3]")
    assert lasting(100) == 2 * lasting(100, "extract.positions=[inst_last, post_last]")  # of three and a mean


def test_the_dry_run_lists_the_steps_and_without_a_gpu_an_a100_too(cli) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = cli("dissociate", "configs/quickstart.yaml", "--dry-run", "--json")
    record = json.loads(out)
    assert code == 0
    assert record["prompts"] == 2002
    listed = record["steps, at most"]
    assert listed["plain completions"] == "2,002 completions"
    assert listed["interventions on test prompts"] == "1,770 completions"
    assert "null" in " ".join(listed)
    assert "completions with the dials" not in listed
    assert record["on a GPU"]["machine"] == A100.described()
    assert record["on a GPU"]["weights, bytes"] * 2 == record["here"]["weights, bytes"]
    assert record["on a GPU"]["activations on disk, bytes"] * 2 == record["activations on disk, bytes"]


def test_steering_announces_every_outcome_and_a_dead_band_more_of_them() -> None:
    def announced(*overrides: str) -> dict[str, int]:
        return {step.name: step.completions for step in steps(config(*overrides), SIZE, "steer")}

    plain, banded = announced(), announced("steer.band=0.1")
    assert plain["every outcome of the two gates"] == 3 * 100
    assert banded["every outcome of the two gates"] == 7 * 100
    assert plain["every outcome of one dial, at two places"] == 2 * 2 * 100
    assert plain["test prompts under system lines"] == 3 * 35
    assert announced("steer.system_lines=[]")["test prompts under system lines"] == 0
    assert plain["completions with the dials"] == 35
    by_category = "completions with thresholds by category"
    assert (announced("steer.by=category")[by_category], by_category in plain) == (35, False)
    biased = announced("steer.actuator=onset_bias")  # openings have no place, so the one dial has one way to act
    assert biased["every outcome of one dial"] == 2 * 100
    assert biased["every outcome of the two gates"] == 3 * 100


def test_a_search_for_the_rank_is_announced_where_it_is_asked_for() -> None:
    size = replace(SIZE, train=35, declinable=30)

    def announced(*overrides: str) -> dict[str, int]:
        listed = steps(config(*overrides), size, "dissociate")
        return {step.name: step.completions or step.passes for step in listed if step.name.startswith("rank")}

    assert announced() == {}
    assert announced("dissociate.rank=auto")["rank: completions"] == 8 * (35 + 3 * 30)
    assert announced("dissociate.rank=2")["rank: completions"] == 2 * (35 + 3 * 30)
    assert announced("dissociate.rank=2", "dissociate.layers=later")["rank: streams"] == 2 * 2 * 100


@pytest.mark.slow
def test_a_run_generates_no_more_than_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a model that declines, so that no step is skipped."""
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(3)))
    given = config(f"prompts.path={tmp_path / 'prompts.jsonl'}", "dissociate.n_null_onset=79",
                   "dissociate.n_null_generation=2", "dissociate.n_onset=12", "dissociate.n_selection=8",
                   "dissociate.positions=[post_last]", "dissociate.n_side_effects=6")  # fmt: skip
    generated = []
    plain = PromptBatch.responses

    def counting(self, setting, places, most, within):  # type: ignore[no-untyped-def]
        generated.append(len(places))
        return plain(self, setting, places, most, within)

    monkeypatch.setattr(PromptBatch, "responses", counting)
    run(given, tmp_path / "run", until="dissociate", reporter=Reporter(quiet=True))
    record = json.loads((tmp_path / "run/stages/dissociate.json").read_text())
    assert record["verdict"] != "not_applicable"
    announced = estimate(given, "dissociate", Reporter(quiet=True)).record(tmp_path / "run")["completions, at most"]
    assert 0.6 * announced <= sum(generated) <= announced


def test_of_a_model_that_thinks_onset_passes_read_the_thought_and_candidates_are_answered_again() -> None:
    short, long = (steps(config(), replace(SIZE, thought=n), "dissociate") for n in (100.0, 500.0))
    longer = {after.name: after.tokens_a_pass - before.tokens_a_pass for before, after in zip(short, long, strict=True)}
    assert set(longer.values()) == {0.0, 400.0}
    plain = {step.name: step for step in steps(config(), SIZE, "dissociate")}
    read = {name for name, more in longer.items() if more}
    assert "permuted-label null: onset effects" in read <= {name for name, step in plain.items() if step.repeats > 1}
    answered = {step.name: step.completions for step in long if step.name not in plain}
    assert {name.partition(":")[0] for name in answered} == {"choosing write directions", "cross-fitting",
                                                             "permuted-label null"}  # fmt: skip
    assert answered["permuted-label null: answers after new thoughts"] > 5 * plain["plain completions"].completions


def test_thoughts_that_are_to_be_captured_are_counted_before_any_answer() -> None:
    given = ["extract.thought_tokens=800", "prompts.limit=60"]
    names = [{step.name for step in estimate(config(*more), "dissociate", Reporter(quiet=True)).plan().steps}
             for more in ([], given)]  # fmt: skip
    assert {"answers, to capture their thoughts", "permuted-label null: answers after new thoughts"} <= names[
        1
    ] - names[0]


def test_a_thought_is_counted_once_where_it_is_captured_out_of_the_answer() -> None:
    def completions(*given: str, done: tuple[str, ...] = ()) -> dict[str, int]:
        of = "answers, to capture their thoughts", "plain completions"
        return {s.name: s.completions for s in steps(config(*given), SIZE, "probe", done) if s.name in of}

    given, plain = ["extract.thought_tokens=60", "generate.max_new_tokens=64"], {"plain completions": SIZE.prompts}
    captured = {"answers, to capture their thoughts": SIZE.read}
    assert completions() == plain
    assert completions(*given) == captured
    assert [step.completions for step in steps(config(*given), SIZE, "extract")] == [0, SIZE.read]
    assert completions(*given, done=("extract",)) == plain  # other answers may be asked for now
    for more in ("extract.thought_tokens=65", "extract.response_tokens=2"):
        assert completions(*given, more) == captured | plain
