"""`refusal eval`: one joint evaluation of a local model or of any endpoint; `refusal leaderboard`: a page of them."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import Adapter, AlsoRefuses, Json, MaxNewTokens, SetsFolder, Template, print_json
from refusal.cli.program import short_path
from refusal.cli.score import print_card, write_card

if TYPE_CHECKING:
    from experiments.report.page.leaderboard import RankedModel
    from extract.prompts.prompt import Prompt
    from scoring.evaluation.asking import Target


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A directory, GGUF file, package:NAME, hub id or known name; with --base-url the model's name there.",
        ),
    ],
    suite: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="core, public, accommodation, or a YAML file.")
    ] = "core",
    sets: SetsFolder = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory of the results; by default evals/TARGET-SUITE."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many prompts of each label of a set.")] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the endpoint's key.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests in flight at once.")] = 8,
    price_input: Annotated[float | None, typer.Option(min=0, help="Price of a million input tokens.")] = None,
    price_output: Annotated[float | None, typer.Option(min=0, help="Price of a million output tokens.")] = None,
    state_target: Annotated[
        float | None,
        typer.Option(min=0, max=0.99, help="Say in each question with a known answer what a wrong one costs there."),
    ] = None,
    ask_confidence: Annotated[
        bool, typer.Option("--ask-confidence", help="Ask in each question with a known answer how sure the model is.")
    ] = False,
    max_new_tokens: MaxNewTokens = 256,
    judge: Annotated[
        str, typer.Option(metavar="JUDGE", help="rules, local, or a YAML file such as configs/judges/endpoint.yaml.")
    ] = "rules",
    also_refuses: AlsoRefuses = None,
    adapter: Adapter = None,
    template: Template = None,
    as_json: Json = False,
) -> None:
    """Ask a model a suite of public sets; judge and score the answers jointly. Goes on where it was stopped.

    Example: refusal eval organisms/zoo/two-knobs --suite core --limit 50

    Any endpoint: refusal eval gpt-4o-mini --base-url https://api.openai.com/v1 --api-key-env OPENAI_API_KEY

    Public sets: refusal eval MODEL --suite public --sets my-sets/
    """
    from extract.progress import Reporter
    from judging.judge_by_name import open_judge
    from scoring.abstaining import worded
    from scoring.evaluation import asking
    from scoring.evaluation.suite import load_suite, prompts_of
    from scoring.judges.site_phrases import read_phrases
    from scoring.rates import FIRST, first_line, first_rows
    from scoring.score_file import score_file

    if base_url is None and api_key_env is not None:
        raise UserError("--api-key-env is for an endpoint; give --base-url, too")
    if base_url is not None and (adapter or template):
        raise UserError("--adapter and --template are for a local model; the endpoint has its own")
    if also_refuses is not None:
        read_phrases(also_refuses)  # a mistake is said before the model is asked
    prompts = worded(prompts_of(load_suite(suite), sets, limit), state_target, ask_confidence)
    folder = out or Path("evals") / f"{_word(target)}-{_word(suite)}"
    reporter = Reporter(quiet=as_json)
    if base_url:
        asked = _endpoint(target, base_url, api_key_env, concurrency, max_new_tokens)
    else:
        asked = _local(target, adapter, template, max_new_tokens)
    settings = asked.settings | {"state_target": state_target, "limit": limit, "ask_confidence": ask_confidence}
    sources = dict(Counter(prompt.source or "own prompts" for prompt in prompts))
    about = {"target": target, "base_url": base_url, "suite": Path(suite).stem, "prompts": len(prompts)}
    evaluation = asking.Evaluation(**about, settings=settings, sources=sources)
    asking.begin(folder, evaluation)
    with closing(asking.KeptAnswers(folder / "answers.sqlite", asked.depends_on)) as answers:
        left = answers.left(prompts)
        if len(left) < len(prompts):
            reporter.say(f"{len(prompts) - len(left)} of {len(prompts)} prompts are answered already")
        if len(left) == len(prompts) > FIRST:
            first = [prompts[row] for row in first_rows([prompt.label for prompt in prompts], seed=0)]
            with reporter.task(f"asking {target} first", FIRST) as advance:
                asking.ask_all(first, asked, answers, advance)
            reporter.say(first_line(asking.rates_of(first, answers)))
            left = answers.left(prompts)
        with reporter.task(f"asking {target}", len(prompts)) as advance:
            advance(len(prompts) - len(left), remembered=True)
            failed = asking.ask_all(left, asked, answers, advance)
        done = asking.finish(folder, evaluation, prompts, answers, failed, (price_input, price_output))
    if not done.answered:
        raise UserError(f"no prompt was answered ({_counts(done.failed)}); the same command asks again")
    opened, asked_file = open_judge(judge, folder / "judgements.sqlite", also_refuses), folder / asking.PROMPTS
    card = score_file(folder / asking.COMPLETIONS, folder, judge=opened, prompts=asked_file, reporter=reporter)
    write_card(card, folder, target, "report.html")
    (folder / asking.SUMMARY).write_text(asking.summary(done, card), encoding="utf-8")
    if as_json:
        print_json(done.to_dict() | {"scorecard": card.to_dict()})
    else:
        print_card(card)
        if done.cost is not None:
            typer.echo(f"{'cost':<20} {done.cost:.2f}")
        typer.echo(f"Report: {short_path(folder / 'report.html')}", err=True)
    if done.failed:
        n = f"{sum(done.failed.values())} of {done.prompts} prompts"
        typer.echo(f"refusal: {n} have no answer ({_counts(done.failed)}); the same command asks them again", err=True)
        raise typer.Exit(1)


def _local(name: str, adapter: str | None, template: str | None, most: int) -> Target:
    from refusal.model import AT_ONCE, load_model
    from scoring.evaluation.asking import Target
    from scoring.judges.chat_endpoint import Reply

    model = load_model(name, adapter=adapter, template=template)
    settings: dict[str, str | int | float | None] = {"max_new_tokens": most, "adapter": adapter, "template": template}
    settings["fingerprint"] = model.fingerprint()

    def ask(batch: Sequence[Prompt]) -> list[Reply]:
        return [Reply(text) for text in model.chat(batch, max_new_tokens=most, progress=False)]

    return Target(name, settings, ["local", *settings.values()], ask, AT_ONCE)


def _endpoint(name: str, url: str, key_name: str | None, concurrency: int, most: int) -> Target:
    from extract.yaml_file import as_model
    from scoring.evaluation.asking import endpoint_target
    from scoring.judges.config import EndpointConfig

    settings = {"base_url": url, "model": name, "api_key_env": key_name, "concurrency": concurrency}
    config = as_model(EndpointConfig, settings | {"max_tokens": most, "json_mode": False}, "--base-url")
    return endpoint_target(config, {"max_new_tokens": most, "temperature": config.temperature, "seed": config.seed})


def _counts(failed: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in failed.items()) or "nothing was asked"


def _word(name: str) -> str:
    return Path(name).stem.replace(":", "-") or "model"


def leaderboard(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of refusal run, eval or score.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("leaderboard.html"),
) -> None:
    """Write one page of evaluated models: over-refusal, missed harm and overconfidence, with intervals, to sort.

    Example: refusal leaderboard evals/one-core evals/other-core
    """
    from experiments.report.page.leaderboard import leaderboard_page
    from extract.atomic_write import write_text

    models = [_listed(run, out) for run in runs]
    names = [one.name for one in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two runs are of {twice}; give each model once")
    write_text(out, leaderboard_page(models))
    typer.echo(str(out))


def _of_run(run: Path, out: Path) -> RankedModel:
    """Return the model of a finished run: its plain answers to test prompts, and what it reads and does not say."""
    from experiments.report.page.leaderboard import RankedModel
    from experiments.report.results import RunResults
    from scoring.judges import JudgeRecord
    from scoring.scorecard import Scorecard

    found = RunResults.read(run / "results.json")
    tested = sum(found.prompts_by_part.get("test", {}).values())
    card = Scorecard(
        n=tested,
        actions={},
        rates=found.rates.before,
        right_action=found.right_action.before,
        judge=JudgeRecord(judge=found.judge),
    )
    asked = f"the test prompts of {found.prompts_path}"
    return RankedModel(found.model.name, card, asked, report=_link(run, out), unspoken=found.unspoken)


def _link(run: Path, out: Path) -> str:
    report = run / "report.html"
    return os.path.relpath(report, out.parent) if report.is_file() else ""


def _listed(run: Path, out: Path) -> RankedModel:
    from experiments.report.page.leaderboard import RankedModel
    from scoring.evaluation.asking import RECORD, Evaluation
    from scoring.scorecard import Scorecard

    if (run / "results.json").is_file():
        return _of_run(run, out)
    if not (run / "scorecard.json").is_file():
        raise UserError(f"{run} has no scorecard.json; give directories written by refusal run, eval or score")
    card = Scorecard.read(run / "scorecard.json")
    if card.rates is None:
        raise UserError(f"{run}: its completions have no labels, so there are no rates to list")
    link = _link(run, out)
    if not (run / RECORD).is_file():
        return RankedModel(run.name, card, f"{card.n:,} prompts of its own file", report=link)
    evaluation = Evaluation.read(run / RECORD)
    settings = evaluation.settings
    words = ["refusal", "eval", evaluation.target]
    words += ["--base-url", evaluation.base_url] if evaluation.base_url else []
    words += ["--suite", evaluation.suite]
    for name in ("adapter", "template", "max_new_tokens", "state_target", "limit"):
        words += [f"--{name.replace('_', '-')}", str(settings[name])] if settings.get(name) is not None else []
    command = shlex.join([*words, *["--ask-confidence"] * bool(settings.get("ask_confidence"))])
    name = f"{evaluation.target} with {settings['adapter']}" if settings.get("adapter") else evaluation.target
    sources = ", ".join(f"{source} {n}" for source, n in sorted(evaluation.sources.items()))
    return RankedModel(name, card, f"the suite {evaluation.suite} ({sources})", command, link)
