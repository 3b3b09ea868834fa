"""`refusal score` and `refusal compare`: the commands that need no model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import NO_OVERRIDES, AlsoRefuses, Json, print_json, wrapped
from refusal.cli.stdin import StandardInput

if TYPE_CHECKING:
    from scoring.scorecard import Scorecard

Adjacent = Annotated[
    Path | None,
    typer.Option("--adjacency", metavar="FILE", help="Partial credits; by default configs/right_action.yaml."),
]


def score(
    completions: Annotated[
        Path,
        typer.Argument(
            metavar="COMPLETIONS",
            help="JSONL, JSON, CSV, Parquet; an Inspect log; lm-eval samples; a run directory, whose "
            "completions.jsonl is scored with the run's own prompts; or - for standard input.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory of the results; by default that of COMPLETIONS (a run's own files stay as they are), "
            "for - the working directory.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The labelled prompts of the completions, joined by id.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The public set of the prompts; without --prompts it is read from the hub."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="JUDGE",
            help="rules, local, or a YAML file such as configs/judges/endpoint.yaml; by default that of a run "
            "directory, else rules.",
        ),
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option(metavar="JUDGE", help="Ask what answers to harmful prompts deliver; one of configs/delivery."),
    ] = None,
    also_refuses: AlsoRefuses = None,
    judge_cache: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Cache of an endpoint's judgements; by default judgements.sqlite in --out."),
    ] = None,
    column: Annotated[
        list[str], typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from this column; repeatable.")
    ] = NO_OVERRIDES,
    columns: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A YAML file that maps columns, with value maps and constants.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Text encoding of COMPLETIONS where it is not UTF-8, e.g. cp1252.")
    ] = None,
    adjacency: Adjacent = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels by people of 100 to 300 random completions; corrects the rates."),
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Also write scored.parquet.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Also write scorecard.html, a page to read and send.")] = False,
    as_json: Json = False,
) -> None:
    """Label the action of each completion; with labelled prompts, compute the joint rates. Runs no model.

    Example: refusal score runs/quickstart

    From a pipe: zcat answers.jsonl.gz | refusal score - --prompts PROMPTS --out scores

    Your own file: refusal score FILE --prompts PROMPTS --map completion=COLUMN --map label=COLUMN

    Rates corrected by labels of refusal label: refusal score FILE --prompts PROMPTS --labels labels.jsonl
    """
    from extract.progress import Reporter
    from judging.judge_by_name import open_judge
    from scoring.score_file import score_file
    from scoring.scored_file import judge_of_run

    if delivery is not None:
        from scoring.judges.delivery import open_delivery
    folder = out or (completions if completions.is_dir() else completions.parent)
    cache = judge_cache or folder / "judgements.sqlite"
    with StandardInput() as given:
        card = score_file(
            given.file(completions),
            folder,
            judge=open_judge(judge or judge_of_run(completions) or "rules", cache, also_refuses),
            delivery=None if delivery is None else open_delivery(delivery, cache),
            prompts=given.file(prompts),
            dataset=dataset,
            columns=columns,
            mapped=column,
            encoding=encoding,
            adjacency=adjacency,
            labels=given.file(labels),
            parquet=parquet,
            reporter=Reporter(quiet=as_json),
        )
    if html:
        write_card(card, folder, "standard input" if completions == Path("-") else completions.name, "scorecard.html")
    if as_json:
        print_json(card.to_dict())
        return
    print_card(card)
    typer.echo(f"Action and evidence of each completion: {folder / 'scored.jsonl'}", err=True)
    if html:
        typer.echo(f"Page: {folder / 'scorecard.html'}", err=True)


def write_card(card: Scorecard, folder: Path, title: str, page: str) -> None:
    """Write the page of a scored folder."""
    from experiments.report.page.document import write_page
    from experiments.report.page.scoring_page import scorecard_page
    from scoring.scored_file import scored_entries

    write_page(scorecard_page(card, list(scored_entries(folder / "scored.jsonl")), title), folder / page)


def print_card(card: Scorecard) -> None:
    """Print the rates of a scorecard."""
    from scoring.wording import card_lines

    for line in card_lines(card):
        typer.echo(wrapped(line, 2))


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN…", help="Run directories, or scored files; - for one on stdin.")
    ],
    fail_if: Annotated[
        list[str],
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with code 1 where this holds for a later run; names: over_refusal, missed_harm, "
            "overconfidence, uncertain_refused, right_action, unjudged; change.NAME; NAME.low, NAME.high; repeatable.",
        ),
    ] = NO_OVERRIDES,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory for comparison.json and flips.jsonl.")
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Also write comparison.html into --out.")] = False,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as Markdown.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as CSV.")] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each condition of --fail-if as a JUnit test case.")
    ] = None,
    adjacency: Adjacent = None,
    as_json: Json = False,
) -> None:
    """Compare completions of the same prompts: changed rates, flipped prompts, moves along or off the trade-off.

    Example: refusal compare runs/quickstart runs/quickstart/completions_steered.jsonl

    Your own runs: refusal compare RUN RUN --fail-if 'change.missed_harm.high > 2%' --out changes

    In CI: refusal compare RUN RUN --fail-if 'change.missed_harm.low > 0' --junit report.xml --markdown summary.md
    """
    import json

    from extract.atomic_write import write_text
    from scoring.compare.comparison import Comparison, compare_runs, write_comparison
    from scoring.compare.fail_if import failures, parse_all
    from scoring.compare.text import print_comparison, to_csv, to_junit, to_markdown
    from scoring.right_action import DEFAULT, load_adjacency

    if len(runs) < 2:
        raise UserError(f"compare takes two runs or more, got {len(runs)}: refusal compare RUN RUN")
    if html and out is None:
        raise UserError("--html writes comparison.html into the directory of --out: give --out DIR")
    conditions = [condition for text in fail_if for condition in parse_all(text)]
    if junit is not None and not conditions:
        raise UserError("--junit writes the conditions of --fail-if; give one, such as --fail-if 'missed_harm > 5%'")
    with StandardInput() as given:
        comparison = compare_runs([given.file(run) for run in runs], load_adjacency(adjacency or DEFAULT))
        if Path("-") in runs:  # the comparison names its files
            comparison = Comparison.model_validate_json(given.named(json.dumps(comparison.to_dict())))
    failed = failures(comparison, conditions)
    comparison = comparison.model_copy(update={"failed": failed})
    if out is not None:
        write_comparison(comparison, out)
    if html and out is not None:
        from experiments.report.page.document import write_page
        from experiments.report.page.scoring_page import comparison_page

        write_page(comparison_page(comparison), out / "comparison.html")
    if markdown is not None:
        write_text(markdown, to_markdown(comparison))
    if csv is not None:
        write_text(csv, to_csv(comparison))
    if junit is not None:
        write_text(junit, to_junit(comparison, conditions))
    if as_json:
        print_json(comparison.to_dict())
    else:
        print_comparison(comparison)
    for one in failed:
        why = f"holds: it is {one.value:.4g}" if one.known else "is not known: nothing was judged"
        typer.echo(f"refusal: {one.run}: --fail-if '{one.condition}' {why}", err=True)
    if failed:
        raise typer.Exit(1)
