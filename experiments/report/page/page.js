// One run: its data, its thresholds, and the parts of the page that show them. Rates and decisions are looked up: the run
// wrote them for every pair of thresholds tried, and nothing is counted here but shares of the prompts that filters select.

class Run {
  constructor(article) {
    this.at = (selector) => article.querySelector(selector);
    this.all = (selector) => [...article.querySelectorAll(selector)];
    Object.assign(this, JSON.parse(this.at("script.payload").textContent));
    this.actionsNow = this.prompts.before;
    this.stop = this.dials.map((kind) => this.stops[kind].indexOf(this.set[kind])); // the place of each threshold among its stops
    if (this.dials.length) this.outcomeSet = this.outcomes();
    this.charts = new Charts(article);
    this.list = new PromptList(this);
    if (this.dials.length) this.sliders = new Sliders(this);
    this.list.offerChanges(true);
    this.list.show();
    const scatter = this.charts.named("scatter");
    if (scatter) this.scatter = new Scatter(this, scatter);
  }

  /** The name of an action, from its index. */
  action(index) { return index < 0 ? "not judged" : this.actions[index]; }

  threshold(d) { return this.stops[this.dials[d]][this.stop[d]]; }

  /** What each dial does to prompt i: it declines up to one of its stops, then leaves, then permits; after one that declines the others leave. */
  gates(i) {
    let declined = false;
    return this.gate.map(({ declines, leaves }, d) => {
      if (declined || (this.stop[d] >= declines[i] && this.stop[d] < leaves[i])) return "leave";
      declined = this.stop[d] < declines[i];
      return declined ? "decline" : "permit";
    });
  }

  /** The outcome of every prompt at these thresholds, as an index into `done`. */
  outcomes() { return this.prompts.id.map((_, i) => this.outcome_of[this.gates(i).join("+")]); }

  /** What dial d reads of prompt i, and what it does. */
  decision(d, i) { return `${this.read[d][i].toFixed(3)}, ${{ decline: "declined", leave: "left", permit: "permitted" }[this.gates(i)[d]]}`; }

  /** A rate at these thresholds: its value, its text, and its n in words. */
  rate(name) {
    const { cells, at } = this.surface[name];
    return cells[at[this.stop.reduce((place, stop, d) => place * this.stops[this.dials[d]].length + stop, 0)]];
  }
}

// -- the threshold sliders of a run, each on the thresholds tried, and the rates there

class Sliders {
  constructor(run) {
    this.run = run;
    run.dials.forEach((kind, d) => {
      const slider = run.at(`.slider[data-kind=${kind}]`), exact = run.at(`.exact[data-kind=${kind}]`), stops = run.stops[kind];
      slider.list.append(...stops.map((stop) => node("option", undefined, { value: stop })));
      slider.addEventListener("input", () => this.move({ [kind]: Number(slider.value) }));
      slider.addEventListener("keydown", (event) => {
        const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
        if (!way) return;
        event.preventDefault();
        this.move({ [kind]: stops[Math.min(Math.max(run.stop[d] + way, 0), stops.length - 1)] });
      });
      exact.addEventListener("change", () => {
        const value = Number(exact.value);
        this.move({ [kind]: exact.value !== "" && value >= 0 && value <= 1 ? value : run.threshold(d) });
      });
    });
    for (const button of run.all(".preset")) {
      button.addEventListener("click", () => this.move(run.presets[button.dataset.preset].thresholds));
    }
    for (const button of run.all(".copy")) button.addEventListener("click", () => copyText(button.previousElementSibling, button));
    this.move(run.set);
  }

  /** Take the thresholds tried that are nearest to these, and show everything there. */
  move(thresholds) {
    const run = this.run;
    run.dials.forEach((kind, d) => {
      if (kind in thresholds) run.stop[d] = nearest(run.stops[kind], thresholds[kind]);
      const slider = run.at(`.slider[data-kind=${kind}]`), exact = run.at(`.exact[data-kind=${kind}]`), value = run.threshold(d);
      slider.value = value;
      slider.setAttribute("aria-valuetext", digits(value));
      exact.value = digits(value);
      exact.dataset.exact = value;
    });
    run.outcome = run.outcomes();
    run.actionsNow = run.outcome.map((place, i) => run.done[place][i]);
    this.showRates();
    run.at(".live-rates").classList.toggle("moved", run.dials.some((kind, d) => run.threshold(d) !== run.set[kind]));
    for (const code of run.all("[data-command]")) {
      const options = run.dials.map((kind, d) => `--${kind}-threshold ${run.threshold(d)}`);
      code.textContent = [run.commands[code.dataset.command], ...options].join(" ");
    }
    run.list.offerChanges(false);
    run.list.show();
  }

  /** Show the rates, say them in a line, and move the point of each trade-off chart. */
  showRates() {
    const run = this.run, told = [];
    for (const row of run.all("[data-rate]")) {
      const [, text, n] = run.rate(row.dataset.rate);
      row.querySelector(".now").textContent = text;
      row.querySelector(".n").textContent = n;
      told.push(`${row.dataset.rate.replaceAll("right_action", "right-action score")} ${text.split(" [")[0]}`);
    }
    run.at(".current-rates").textContent = `At these thresholds: ${told.join(", ")}`;
    for (const figure of run.charts.figures.filter((of) => of.dataset.chart.startsWith("tradeoff_"))) {
      const [x] = run.rate("over_refusal"), [y] = run.rate(figure.dataset.chart.slice("tradeoff_".length)), known = x !== null && y !== null;
      run.charts.fill(figure, "live", [{ kind: "these thresholds", name: "these thresholds", x: known ? x : 0, y: known ? y : 0, shown: known ? 1 : 0 }]);
    }
  }
}

/** The place of the stop that is nearest to a value. */
function nearest(stops, value) {
  return stops.reduce((best, stop, k) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? k : best), 0);
}

// -- a table of a sweep or of models: its headings sort, by each cell's data-key, and a search keeps the rows with its words

class SortableTable {
  constructor(article) {
    this.table = article.querySelector("table.cells");
    this.rows = [...this.table.querySelectorAll("tbody tr")];
    this.sorted = [-1, 1];
    this.count = article.querySelector(".count");
    const search = article.querySelector(".search");
    search.addEventListener("input", () => this.keep(search.value));
    this.table.querySelectorAll("thead button").forEach((button, i) => button.addEventListener("click", () => this.sort(i)));
  }

  /** Sort by a column; again, the other way round. What is not known comes last. */
  sort(column) {
    const way = this.sorted[0] === column ? -this.sorted[1] : 1;
    this.sorted = [column, way];
    const keys = this.rows.map((row) => row.children[column].dataset.key);
    const numbers = keys.every((key) => key === "" || Number.isFinite(Number(key)));
    const value = (row) => { const key = row.children[column].dataset.key; return numbers ? Number(key) : key; };
    const known = this.rows.filter((row) => row.children[column].dataset.key !== "");
    const others = this.rows.filter((row) => row.children[column].dataset.key === "");
    known.sort((a, b) => way * compare(value(a), value(b)));
    this.table.tBodies[0].append(...known, ...others);
    this.table.querySelectorAll("thead th").forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  /** Show the rows that have all words of a text. */
  keep(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of this.rows) {
      const has = words.every((word) => row.textContent.toLowerCase().includes(word));
      row.hidden = !has;
      shown += has;
    }
    this.count.textContent = words.length ? `${shown} of ${this.rows.length} cells` : "";
  }
}

for (const article of document.querySelectorAll("article.sweep")) new SortableTable(article);
for (const article of document.querySelectorAll("article.comparison")) new Charts(article);
const runs = [...document.querySelectorAll("article.run")].map((article) => new Run(article));
