"""`refusal recalibrate`: new thresholds and certificates for what a server was asked, without fitting again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from refusal.cli import options
from refusal.cli.program import program, resumable


@resumable()
def recalibrate(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What refusal serve --log wrote.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of the run that the dials are from.")],
    sample: Annotated[int, typer.Option(min=20, help="Requests to label, drawn at random.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the new dials.safetensors; by default RUN/recalibrated."),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Choose and certify thresholds again on a random sample of what was asked; reads and directions stay.

    The first call draws the sample and says where to label it; the next answers it under every outcome of the gates,
    says whether the run's limits hold there, and writes dials with new thresholds and what is certified of them.

    Example: refusal recalibrate asked.jsonl runs/quickstart
    """
    from experiments.recalibration.sample import draw_sample, labelled
    from experiments.run.config import load_config
    from extract.model.loading_options import quiet_libraries
    from extract.progress import Reporter

    reporter, folder = Reporter(quiet=quiet or as_json), out or run / "recalibrated"
    config, path = load_config(run / "config.yaml"), run / "dials.safetensors"
    if not path.is_file():
        raise UserError(f"{run} has no dials; fit them with: {program()} steer {run}")
    prompts = labelled(draw_sample(log, sample, seed, reporter.say))
    quiet_libraries()
    from experiments.recalibration.measure import Recalibrator, certificate_of, lines
    from experiments.responses.completions import Completer
    from experiments.responses.response_cache import ResponseCache
    from extract.atomic_write import make_folder
    from extract.chat.render import refuse_too_long, render
    from extract.chat.template import template_arguments
    from extract.model.chat_model import ChatModel
    from extract.model.loading import open_model
    from judging.judge_by_name import open_judge
    from steering.dial import normative_first
    from steering.dial_file import load_dials, save_dials

    model = open_model(ChatModel, config.model)
    made_for = model.fingerprint(), model.cast_fingerprint()
    arguments = template_arguments(model.tokenizer)
    dials = normative_first(load_dials(path, *made_for, reporter.say, arguments))
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    refuse_too_long(prompts, rendered, model.context)
    if any(dial.by_category is not None for dial in dials):
        reporter.say(
            "these dials have thresholds by category; the sample is measured, and the new dials are, without them"
        )
    make_folder(folder)
    folder.chmod(0o700)  # what people asked, and the model's answers
    judge, cache = (
        open_judge(config.judge, folder / "judgements.sqlite"),
        ResponseCache(folder / "generations.sqlite", model),
    )
    answering = config.generate.max_new_tokens, config.generate.batch_size
    completer = Completer(model, prompts, rendered, *answering, judge=judge, cache=cache, say=reporter.say)
    result, moved = Recalibrator.of(config, dials, completer).recalibrated(certificate_of(run))
    save_dials(moved, folder / "dials.safetensors", *made_for, arguments)
    result.write(folder / "recalibration.json")
    if as_json:
        options.print_json(result.to_dict())
        return
    for line in lines(result):
        typer.echo(line)
    sure = any(risk.certified for risk in result.certificate.risks.values())
    held = "" if sure else " (not certified)"
    typer.echo(f"Serve with{held}: {program()} serve {config.model.name} --dials {folder}", err=True)
