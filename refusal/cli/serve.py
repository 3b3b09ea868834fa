"""`refusal serve`: an OpenAI-compatible server with both thresholds in the request."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from extract.run_directory import file_of_run
from refusal.cli import options

if TYPE_CHECKING:
    from serving.exchange import Decoding
    from steering.dial import Dial


class EngineName(StrEnum):
    """What decodes."""

    transformers = "transformers"
    vllm = "vllm"


def serve(
    model: options.Model,
    dials: options.Dials = None,
    normative_threshold: options.NormativeThreshold = None,
    epistemic_threshold: options.EpistemicThreshold = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs an API key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="REFUSAL_API_KEY", help="Key that clients must send; safer in the environment.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Model name for clients; by default the last part.")] = None,
    engine: Annotated[
        EngineName,
        typer.Option(help="transformers: try it. vllm: serve many, with continuous batching (docs/vllm.md)."),
    ] = EngineName.transformers,
    engine_args: Annotated[
        list[str], typer.Option("--engine-arg", metavar="KEY=VALUE", help="An argument of vLLM's engine; repeatable.")
    ] = options.NO_OVERRIDES,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 512,
    max_batch: Annotated[int, typer.Option(min=1, help="Answers decoded together.")] = 16,
    max_queue: Annotated[int, typer.Option(min=1, help="Answers that may wait; further requests get 429.")] = 64,
    max_body: Annotated[int, typer.Option(min=1, help="The largest request, in KiB.")] = 1024,
    seconds: Annotated[float, typer.Option(min=0.1, help="Limit of waiting and decoding for one request.")] = 120.0,
    ui: Annotated[
        bool, typer.Option("--ui", help="Also serve a page: answers side by side, with every token's readings.")
    ] = False,
    alarms: Annotated[
        float | None,
        typer.Option(
            min=0.0001,
            max=0.5,
            help="The dials watch prompts and answers and write nothing; this share of benign "
            "answers may alarm, such as 0.02.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append every conversation with its readings, for refusal recalibrate."),
    ] = None,
    template: options.Template = None,
    template_args: options.TemplateArgs = options.NO_OVERRIDES,
    adapter: options.Adapter = None,
) -> None:
    """Serve a model; each request may set both thresholds (normative_threshold, epistemic_threshold in its body).

    Example: refusal serve organisms/zoo/two-knobs --dials runs/quickstart/dials.safetensors

    Example: refusal serve organisms/zoo/two-knobs --dials runs/quickstart --engine vllm --max-batch 64

    Example: refusal serve organisms/zoo/two-knobs --dials runs/quickstart --alarms 0.02 --log asked.jsonl
    """
    from extract.model.adapter import is_adapter
    from serving.app import Address, serve_forever
    from serving.engine import Engine
    from serving.limits import Limits
    from serving.watch import check_log
    from steering.conversation import open_with_dials
    from steering.dial import alarming

    address = Address(host, port, api_key)
    if dials is None and (alarms is not None or log is not None):
        raise UserError(f"--{'log' if alarms is None else 'alarms'} needs dials: give --dials FILE")
    log = log and check_log(log)
    if engine is EngineName.vllm and ui:
        raise UserError("--ui reads every token, not available with vLLM; leave one of --ui and --engine vllm out")
    if engine is EngineName.transformers and engine_args:
        raise UserError("--engine-arg is for vLLM; give --engine vllm, too")
    if engine is EngineName.vllm:
        from serving.vllm_plugin.plugin import check_version

        check_version()
    of_vllm = options.arguments(engine_args, "--engine-arg", "enforce_eager=true")
    address.listen().close()  # a port that is taken is said before the model is loaded

    thresholds = normative_threshold, epistemic_threshold
    loading = partial(typer.echo, f"loading {model} …", err=True)
    opened = open_with_dials(model, dials, *thresholds, template, options.arguments(template_args), adapter, loading)
    model_, own, placed_at = opened
    opened = model_, own if alarms is None else alarming(own, alarms), placed_at
    limits = Limits(max_tokens=max_tokens, max_body=max_body * 1024, seconds=seconds)

    def make_engine(placed: list[Dial]) -> Decoding:
        if engine is EngineName.transformers:
            return Engine(opened[0], placed, max_batch, max_queue)
        from serving.vllm_plugin.engine import VllmEngine, checkpoint_of

        checkpoint = checkpoint_of(opened[0], adapted=adapter is not None or is_adapter(model))
        path = None if dials is None else file_of_run(dials, "dials.safetensors")
        return VllmEngine(opened[0], placed, checkpoint, path, alarms, max_batch, max_queue, of_vllm)

    serve_forever(make_engine, *opened, address, limits, name, typer.echo, ui=ui, log=log)
