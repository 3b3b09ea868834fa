// The charts of one run: Vega-Lite specifications, drawn by Vega, those in view first and the others when idle.

const MANY = 3000; // points from which on a chart is drawn on a canvas
const AXES_ON_CANVAS = { labelColor: "#767676", titleColor: "#767676" }; // seen on white and on black; SVG follows the page

class Charts {
  constructor(article) {
    this.figures = [...article.querySelectorAll("figure.chart-of")];
    this.views = new Map(); // by figure: a promise of its view
    this.rows = new Map(); // by figure: the rows of its named data
    this.followers = new Map(); // by figure: what to do with its view once it is drawn
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { observer.unobserve(entry.target); this.draw(entry.target); }
    }, { rootMargin: "200px" });
    for (const figure of this.figures) observer.observe(figure);
    addEventListener("load", () => this.drawWhenIdle(0));
  }

  named(name) { return this.figures.find((figure) => figure.dataset.chart === name); }

  /** Draw a figure once; the promise gives its view. */
  draw(figure) {
    if (!this.views.has(figure)) this.views.set(figure, this.embed(figure));
    return this.views.get(figure);
  }

  async embed(figure) {
    if (document.readyState === "loading") await new Promise((done) => { addEventListener("DOMContentLoaded", done); }); // Vega's script is the last
    const spec = JSON.parse(figure.querySelector("script.spec").textContent), rows = this.rows.get(figure) || {};
    const many = Object.values(rows).some((of) => of.length > MANY), place = node("div");
    spec.description = figure.querySelector("figcaption").textContent;
    spec.datasets = { ...spec.datasets, ...rows };
    if (many) for (const part of ["axis", "legend"]) spec.config[part] = { ...spec.config[part], ...AXES_ON_CANVAS };
    figure.querySelector(".plot").append(place);
    // ast: expressions are interpreted, for the page's policy allows no code made from text
    const { view } = await vegaEmbed(place, spec, { ast: true, actions: false, renderer: many ? "canvas" : "svg", tooltip: { theme: "dark" } });
    if (this.followers.has(figure)) this.followers.get(figure)(view);
    return view;
  }

  whenDrawn(figure, follow) { this.followers.set(figure, follow); }

  /** Give a figure's named data other rows, whether it is drawn yet or not. */
  async fill(figure, name, rows) {
    this.rows.set(figure, { ...this.rows.get(figure), [name]: rows });
    if (!this.views.has(figure)) return;
    const view = await this.views.get(figure);
    await view.data(name, this.rows.get(figure)[name]).runAsync();
  }

  drawWhenIdle(i) {
    if (i >= this.figures.length) return;
    const idle = window.requestIdleCallback || ((work) => setTimeout(work, 50));
    idle(async () => { await this.draw(this.figures[i]); this.drawWhenIdle(i + 1); });
  }
}

// -- the scatter plot of all prompts: its rows, a line on the prompt that is pointed at or stepped to, and the way to its row

class Scatter {
  constructor(run, figure) {
    const p = run.prompts;
    this.run = run;
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
    this.line = node("p", "", { class: "pointed", role: "status" });
    this.plot.after(this.line);
    this.order = p.x.map((_, i) => i).sort((a, b) => p.x[a] - p.x[b]);
    this.stepped = -1;
    run.charts.fill(figure, "stepped", [{ x: p.x[0], y: p.y[0], shown: 0 }]);
    run.charts.fill(figure, "prompts", p.x.map((x, i) => (
      { i, x, y: p.y[i], label: run.labels[p.label[i]], action: run.shapes[p.before[i]] || "other" })));
    run.charts.whenDrawn(figure, (view) => {
      view.addEventListener("pointermove", (_, item) => { if (item && item.datum && "i" in item.datum) this.show(item.datum.i); });
      view.addEventListener("click", (_, item) => { if (item && item.datum && "i" in item.datum) run.list.open(item.datum.i); });
    });
    this.plot.addEventListener("keydown", (event) => this.step(event));
  }

  step(event) {
    if (event.key === "Enter" && this.stepped >= 0) {
      event.preventDefault(); // or Enter would close the row that is focused now
      this.run.list.open(this.order[this.stepped]);
    }
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    this.stepped = (this.stepped + way + this.order.length) % this.order.length;
    const i = this.order[this.stepped];
    this.show(i);
    this.run.charts.fill(this.figure, "stepped", [{ x: this.run.prompts.x[i], y: this.run.prompts.y[i], shown: 1 }]);
  }

  show(i) { this.line.textContent = this.about(i); }

  about(i) {
    const run = this.run, p = run.prompts;
    const parts = [`\u2068${p.id[i]}\u2069 (${run.labels[p.label[i]]}, ${p.part[i]})`, `\u2068${run.list.unlessHidden(i, p.text[i])}\u2069`,
      `without dials: ${run.action(p.before[i])}`];
    if (run.dials.length) parts.push(`at these thresholds: ${run.action(run.actionsNow[i])}`);
    run.dials.forEach((kind, d) => parts.push(`${kind}: ${run.decision(d, i)}`));
    return parts.join("; ");
  }
}
