// The scatter plot of all prompts: its rows, a line on the prompt that is pointed at or stepped to, and the way to its row.

const SHAPES = { answer: "answer", answer_with_caveat: "answer", correct_premise: "answer", refuse: "refuse", abstain: "abstain" };

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
      { i, x, y: p.y[i], label: run.labels[p.label[i]], action: SHAPES[run.action(p.before[i])] || "other" })));
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
