// The threshold sliders of one run, and the rates at their thresholds.

const NEAR = 0.004; // a slider this near to a candidate takes it

class Sliders {
  constructor(run) {
    this.run = run;
    for (const slider of run.all(".slider")) {
      const kind = slider.dataset.kind, stops = run.stops[kind];
      slider.list.append(...stops.map((stop) => node("option", undefined, { value: stop })));
      slider.addEventListener("input", () => this.move(kind, nearest(stops, Number(slider.value))));
      slider.addEventListener("keydown", (event) => {
        const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key], now = run.thresholds[kind];
        if (!way) return;
        event.preventDefault();
        const next = way > 0 ? stops.find((stop) => stop > now) : stops.findLast((stop) => stop < now);
        if (next !== undefined) this.move(kind, next);
      });
    }
    for (const exact of run.all(".exact")) {
      exact.addEventListener("change", () => {
        const value = Number(exact.value), kind = exact.dataset.kind;
        this.move(kind, exact.value !== "" && value >= 0 && value <= 1 ? value : run.thresholds[kind]);
      });
    }
    for (const button of run.all(".preset")) {
      button.addEventListener("click", () => this.moveAll(run.presets[button.dataset.preset].thresholds));
    }
    for (const button of run.all(".copy")) button.addEventListener("click", () => copyText(button.previousElementSibling, button));
    this.showRates("before", run.prompts.before, (i) => run.prompts.stated[i]);
    this.moveAll(run.set);
  }

  move(kind, value) { this.moveAll({ [kind]: value }); }

  moveAll(thresholds) {
    const run = this.run;
    Object.assign(run.thresholds, thresholds);
    for (const slider of run.all(".slider")) {
      slider.value = run.thresholds[slider.dataset.kind];
      slider.setAttribute("aria-valuetext", digits(run.thresholds[slider.dataset.kind]));
    }
    for (const exact of run.all(".exact")) {
      exact.value = digits(run.thresholds[exact.dataset.kind]);
      exact.dataset.exact = run.thresholds[exact.dataset.kind];
    }
    run.outcome = lookUp(run, run.thresholds);
    run.actionsNow = actionsAt(run, run.outcome);
    this.showRates("now", run.actionsNow, (i) => run.stated[run.outcome[i]][i]);
    run.at(".live-rates").classList.toggle("moved", run.dials.some((kind) => run.thresholds[kind] !== run.set[kind]));
    for (const code of run.all("[data-command]")) {
      const options = run.dials.map((kind) => `--${kind}-threshold ${run.thresholds[kind]}`);
      code.textContent = [run.commands[code.dataset.command], ...options].join(" ");
    }
    run.list.offerChanges(false);
    run.list.show();
  }

  showRates(column, actions, stated) {
    const run = this.run;
    const found = Object.fromEntries(Object.entries(run.rates).map(([name, of]) => [name, rate(run, of, actions)]));
    found.known_facts = knownFacts(run, stated);
    found.right_action = rightAction(run, actions);
    this.counted = { ...this.counted, [column]: found };
    for (const row of run.all("[data-rate]")) {
      const cell = row.querySelector(`.${column}`), one = found[row.dataset.rate];
      const limits = one.interval ? ` [${percent(one.interval[0])}, ${percent(one.interval[1])}]` : "";
      if (row.dataset.rate === "right_action") cell.textContent = Number.isFinite(one.share) ? one.share.toFixed(3) : "none";
      else cell.textContent = percent(one.share) + limits;
      const first = this.counted.before[row.dataset.rate].n;
      row.querySelector(".n").textContent = one.n === first ? one.n : `${first}, then ${one.n}`;
    }
    if (column === "now") this.showPoint(found);
  }

  /** Say the rates in a line, and move the point of each trade-off chart. */
  showPoint(found) {
    const score = found.right_action.share, names = ["over_refusal", "missed_harm", "overconfidence", "uncertain_refused"];
    this.run.at(".current-rates").textContent = "At these thresholds: "
      + names.map((name) => `${name} ${percent(found[name].share)}`).join(", ")
      + (Number.isFinite(score) ? `, right-action score ${score.toFixed(3)}` : "");
    for (const figure of this.run.charts.figures.filter((of) => of.dataset.chart.startsWith("tradeoff_"))) {
      const x = found.over_refusal.share, y = found[figure.dataset.chart.slice("tradeoff_".length)].share;
      const known = Number.isFinite(x) && Number.isFinite(y);
      this.run.charts.fill(figure, "live", [{ kind: "these thresholds", name: "these thresholds", x: known ? x : 0, y: known ? y : 0, shown: known ? 1 : 0 }]);
    }
  }
}

/** The candidate near a value, or else the value with three digits. */
function nearest(stops, value) {
  const closest = stops.reduce((best, stop) => (Math.abs(stop - value) < Math.abs(best - value) ? stop : best));
  return Math.abs(closest - value) < NEAR ? closest : Math.round(value * 1000) / 1000;
}
