"""The stage `refusal probe`: read probes on labels, write directions on behaviour, and their geometry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.probing.geometry import measured_geometry, measured_independence, over_refused_places
from experiments.probing.read_probes import best_loci, read_direction, read_grid, write_parquet
from experiments.probing.results import MOST_LOCI, Geometry, OnsetRecord, ProbeResults, ScreeningRecord, WriteRecord
from experiments.probing.selection import (
    Candidate,
    FreeSelection,
    LocusSelection,
    Validation,
    choose_known,
    confirmed,
    screening,
)
from experiments.probing.text import draw_grids
from experiments.probing.unspoken import reading_without_saying
from experiments.probing.write_directions import WriteFitter, write_layers, write_positions
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets, learn_onsets
from experiments.run.basis import chosen_basis
from experiments.run.behaviour import ACTION_OF, KINDS, MIN_BASELINE, Basis, Kind, WriteSamples, write_samples
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from extract.capture_spec import is_generated
from extract.chat.thinking import thinks
from extract.errors import UserError
from probes.direction import Direction, cosine
from probes.statistics.seeds import named_rng
from steering.direction_file import save_directions


def probe(loaded: LoadedRun) -> None:
    """Write probes.parquet, directions.safetensors, heat maps, stages/geometry.json and stages/probe.json."""
    read_probes, store = read_grid(loaded.reading), loaded.reading.store
    directions = [read_direction(r, store.read(r.chosen.layer, r.chosen.position)) for r in read_probes.values()]
    basis = chosen_basis(loaded.behaviour, loaded.config)
    loaded.behaviour = replace(loaded.behaviour, by_label=frozenset(), basis=basis)  # not as an earlier run chose
    onsets = context_onsets(loaded)
    writes: dict[Kind, WriteSelection] = {kind: choose_write(loaded, kind, onsets) for kind in KINDS}
    directions += [written.chosen for written in writes.values() if written.chosen is not None]
    rows = [row for read_probe in read_probes.values() for row in read_probe.rows]
    chosen = {kind: written.chosen for kind, written in writes.items()}
    write_parquet([row.model_dump() for row in rows], loaded.file("probes.parquet"))
    save_directions([traced(loaded, direction) for direction in directions], loaded.file("directions.safetensors"))
    draw_grids(rows, list(read_probes), loaded.directory)
    geometry = measured_geometry(loaded, read_probes, chosen, {kind: w.at_position() for kind, w in writes.items()})
    geometry.write(loaded.file("stages/geometry.json"))
    chosen_read = read_probes["normative"].chosen
    ProbeResults(
        basis=basis,
        sites={name: read_probe.chosen for name, read_probe in read_probes.items()},
        best_loci=tuple(best_loci(rows)),
        writes={kind: written.record for kind, written in writes.items()},
        geometry=Geometry(
            **_cosines(writes),
            independence=measured_independence(loaded, {kind: own for kind, own in chosen.items() if own}),
            over_refused_place=over_refused_places(loaded, chosen_read.position),
            read=geometry.at(chosen_read.layer, chosen_read.position),
        ),
        onsets={
            way: OnsetRecord(prefixes=tuple(map(loaded.model.decode, prefixes)), coverage=onsets.coverage[way])
            for way, prefixes in onsets.prefixes.items()
        },
        unspoken=reading_without_saying(loaded),
    ).write(loaded.file("stages/probe.json"))


def traced(loaded: LoadedRun, direction: Direction) -> Direction:
    """Return a direction with what it was fitted on: the model, its weights and template, the prompts, the seed."""
    identity, names = loaded.store.identity, ("model", "revision", "weights", "tokenizer", "template", "prompts")
    provenance = {name: getattr(identity, name) for name in names}
    provenance |= {"cast_weights": loaded.model.cast_fingerprint(), "seed": loaded.config.seed}
    return replace(direction, provenance=provenance | dict(direction.provenance))


def learned_onsets(inputs: RunInputs, basis: Basis | None = None) -> Onsets:
    """Learn onset prefixes of declines by a basis (None: the run's) from its own completions outside the test part.

    Of a model that thinks first they open what follows the thought.
    """
    behaviour = inputs.behaviour if basis is None else replace(inputs.behaviour, basis=basis)
    rows = np.flatnonzero(inputs.corpus.rated & inputs.corpus.within("train", "validation"))
    known, ways = [inputs.completions[i] for i in rows], behaviour.ways[rows].tolist()
    thinking = [thinks(c.completion) for c in known]
    cut = [thought and c.thought == 0 for thought, c in zip(thinking, known, strict=True)]
    onsets = learn_onsets([c.token_ids[c.thought :] for c in known], ways, cut, apart=behaviour.basis != "reason")
    return replace(onsets, thinking=sum(thinking) / max(1, len(known)))


def context_onsets(loaded: LoadedRun, basis: Basis | None = None) -> Onsets:
    """Return `learned_onsets`, with the plain thought of each prompt, after which they are scored."""
    onsets = learned_onsets(loaded, basis)
    if not loaded.thinks:
        return onsets
    asked = zip(loaded.rendered, loaded.completions, strict=True)
    thoughts = {tuple(row.token_ids): c.token_ids[: c.thought] for row, c in asked if c.action is not None}
    return replace(onsets, thoughts=thoughts)


@dataclass(frozen=True)
class WriteSelection:
    """One kind's chosen write direction (None: there is none), and all the directions it was chosen from."""

    record: WriteRecord
    chosen: Direction | None = None
    fitted: tuple[Direction, ...] = ()

    def at_position(self) -> list[Direction]:
        return [d for d in self.fitted if self.chosen is not None and d.locus.position == self.chosen.locus.position]


def choose_write(loaded: LoadedRun, kind: Kind, onsets: Onsets, screened: bool | None = None) -> WriteSelection:
    """Fit write directions on training prompts and choose one on validation prompts.

    `screened`: whether first-order effects are known to choose as well as exact ones; None: it is found out.
    """
    behaviour, config, action = loaded.behaviour, loaded.config.dissociate, ACTION_OF[kind]
    samples, validation, other = write_samples(behaviour, kind), validation_of(loaded, kind), None
    if samples is None:
        did = behaviour.declined(kind)
        return _unavailable(
            f"the model does not {action} often enough ({int(did.sum())} times, "
            f"{int((did & behaviour.corpus.within('train')).sum())} on training prompts, where {MIN_BASELINE} "
            "comparable with answered ones are needed)"
        )
    if validation is None:
        return _unavailable("too few validation prompts are declined or answered")
    if not onsets.prefixes[action]:
        return _unavailable(onsets.lacking(action))
    selection = locus_selection(loaded, kind, onsets, validation)
    chosen = _chosen(loaded, kind, samples, selection, validation, screened)
    if samples.within_label and (chosen is None or chosen.best.bypass > 0):  # most would still decline
        between = replace(behaviour, by_label=behaviour.by_label | {kind})
        if (of_labels := write_samples(between, kind)) is not None:
            other = _chosen(loaded, kind, of_labels, selection, validation, screened)
        if other is not None and other.usable and other.best.bypass <= 0:
            loaded.reporter.say(
                f"the {kind} direction within labels stops no declines on validation prompts; the one "
                "between labels does, and is used"
            )
            loaded.behaviour, chosen = between, other
    if chosen is None:
        return _unavailable("at every layer and position its two classes have the same mean")
    best, samples, agreement = chosen.best, chosen.samples, chosen.screened
    provenance = {
        **best.direction.provenance,
        "meets_selection_rules": chosen.usable,
        "misses": best.discarded(config.max_kl),
        "screened": agreement is not None and agreement.used,  # so the null screens, too
    }
    record = WriteRecord(
        available=True,
        locus=best.direction.locus,
        written_from=WRITE_POSITION,
        meets_selection_rules=chosen.usable,
        within_label=samples.within_label,
        strata=tuple(sorted(set(samples.strata.tolist()))),
        n=len(samples.rows),
        mean_positive=best.direction.mean_positive,
        mean_negative=best.direction.mean_negative,
        kl_tokens=config.kl_tokens,
        likely=best.likely,
        candidates=tuple(candidate.record(config.max_kl) for candidate in chosen.candidates),
        screening=agreement,
    )
    fitted = tuple(candidate.direction for candidate in chosen.candidates)
    return WriteSelection(record, replace(best.direction, provenance=provenance), fitted)


def _unavailable(reason: str) -> WriteSelection:
    return WriteSelection(WriteRecord(available=False, reason=reason))


@dataclass(frozen=True)
class _Chosen:
    """The best candidate of one set of samples, and the candidates that it was chosen from."""

    samples: WriteSamples
    best: Candidate
    usable: bool  # it meets the selection rules
    candidates: list[Candidate]
    screened: ScreeningRecord | None


def _chosen(
    loaded: LoadedRun,
    kind: Kind,
    samples: WriteSamples,
    selection: LocusSelection,
    validation: Validation,
    screened: bool | None,
) -> _Chosen | None:
    """Fit a direction at every locus and choose one, by first-order effects if they may; None if no means differ."""
    fitter, screen, agreement = write_fitter(loaded, kind, samples, later=True), None, None
    if not (fitted := fitter.fit()):
        return None
    if screened is not None:
        screen = selection.screen(fitted) if screened else None
        with loaded.reporter.task(f"choosing the write locus ({kind}, other half)", None) as advance:
            best, usable = selection.choose_each([fitted], screen, advance)[0]
        return _Chosen(samples, best, usable, [best], None)
    steps = len(fitted) * validation.steps
    with loaded.reporter.task(f"choosing the write locus ({kind})", steps) as advance:
        candidates = selection.candidates(fitted, advance)
    try:
        screen = selection.screen(fitted)
    except UserError as error:
        loaded.reporter.say(f"{error}, so the null measures every candidate")
    if screen is not None:
        agreement = screening(screen, candidates)
        if agreement.used:
            rng = named_rng(loaded.config.seed, "labelling to confirm the screening", kind)
            with loaded.reporter.task(f"checking first-order effects ({kind})", steps) as advance:
                permuted = selection.candidates(fitter.fit(samples.permuted(rng)), advance)
            agreement = confirmed(agreement, screening(screen, permuted))
        screen = screen if agreement.used else None
    best, usable = choose_known(candidates, loaded.config.dissociate.max_kl, screen)
    return _Chosen(samples, best, usable, candidates, agreement)


def validation_of(loaded: LoadedRun, kind: Kind) -> Validation | None:
    """Return the prompts on which one kind's candidates are tried; None if there are too few."""
    rng, most = named_rng(loaded.config.seed, "locus selection", kind), loaded.config.dissociate.n_selection
    most = max(4, most // 2) if loaded.thinks else most  # each is answered again under every candidate
    asked = (loaded.behaviour.decliners(kind, "validation"), loaded.behaviour.answered_benign("validation"))
    decliners, benign = (np.sort(rng.permutation(rows)[:most]) for rows in asked)
    if len(decliners) < 4 or len(benign) < 4:
        return None
    return Validation(
        [loaded.rendered[i] for i in decliners],
        [loaded.rendered[i] for i in benign],
        [loaded.completions[i].token_ids for i in benign],
        (decliners.tolist(), benign.tolist()),
    )


def locus_selection(loaded: LoadedRun, kind: Kind, onsets: Onsets, validation: Validation) -> LocusSelection:
    """Return the selection of the run: for the direction of the given labels and for those of permuted ones."""
    config = loaded.config.dissociate
    given = loaded.model, onsets, kind, validation, config.kl_tokens, config.max_kl, config.variant
    if not loaded.thinks:
        return LocusSelection(*given)
    declines = loaded.behaviour.actions_of(kind)
    return FreeSelection(*given, completer=loaded.completer, places=validation.places, declines=declines)


def candidate_layers(loaded: LoadedRun) -> list[int]:
    """Return the stored layers at which directions may be written; UserError: there are none."""
    settings, stored, n_layers = loaded.config.dissociate, loaded.store.layers, loaded.model.n_layers
    deepest, every = settings.deepest, settings.every
    if layers := [layer for layer in write_layers(n_layers, deepest) if layer in stored]:
        return layers[every - 1 :: every] or layers[-1:]
    raise UserError(
        f"dissociate.deepest: write directions are below {deepest:g} of {n_layers} layers, and none of the extracted "
        f"layers ({', '.join(map(str, stored))}) is"
    )


def write_fitter(loaded: LoadedRun, kind: Kind, samples: WriteSamples, *, later: bool = False) -> WriteFitter:
    """Return the fitter of write directions at every candidate locus; `later`: with class means at later layers, too.

    UserError: the store holds no such layer, or not the requested positions.
    """
    store, config, layers = loaded.store, loaded.config.dissociate, candidate_layers(loaded)
    if config.layers == "later" and (absent := sorted(set(range(loaded.model.n_layers)) - set(store.layers))):
        raise UserError(
            f"dissociate.layers is 'later', but activations of layer {absent[0]} are not extracted; "
            "remove extract.layers, so that all layers are extracted"
        )
    possible = write_positions(store, samples.rows)
    if WRITE_POSITION not in possible:
        raise UserError(
            f"{store.path}: write directions are written from {WRITE_POSITION} on, which not every prompt "
            "has; extract this position, and use a template with tokens after the instruction"
        )
    every = [p for p in possible if p == WRITE_POSITION or is_generated(p)] if loaded.thinks else possible
    wanted = every if config.positions is None else config.positions
    if any(map(is_generated, wanted)) and loaded.of is not None:  # under a line prompts are read, thoughts are not
        wanted = [position for position in wanted if not is_generated(position)] or [WRITE_POSITION]
    if strange := [position for position in wanted if position not in possible]:
        raise UserError(
            f"dissociate.positions: write directions cannot be fitted at {strange[0]!r}; "
            f"every prompt has {', '.join(possible)}"
        )
    if loaded.thinks:
        layers = evenly(layers, MOST_LOCI // len(wanted))
    loci = [(layer, position) for layer in layers for position in wanted]
    return WriteFitter(store.read, store.site, loci, kind, samples, store.layers if later else ())


def evenly(layers: list[int], most: int) -> list[int]:
    """Return at most so many layers, at even distances, at least the deepest."""
    apart = -(-len(layers) // max(1, most))
    return layers[apart - 1 :: apart] or layers[-1:]


def _cosines(writes: dict[Kind, WriteSelection]) -> dict[str, Any]:
    """Return the cosines of both write directions at the normative one's position: by layer, and at its own."""
    if (normative := writes["normative"].chosen) is None:
        return {}
    other = {d.locus: d for d in writes["epistemic"].fitted}
    own = [d for d in writes["normative"].at_position() if d.locus in other]
    by_layer = {str(d.locus.layer): cosine(d.vector, other[d.locus].vector) for d in own}
    return {"cosine": by_layer.get(str(normative.locus.layer)), "cosine_by_layer": by_layer}
