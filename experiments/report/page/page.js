// One run: its data, its thresholds and the actions at them, and the parts of the page that show them.

class Run {
  constructor(article) {
    this.at = (selector) => article.querySelector(selector);
    this.all = (selector) => [...article.querySelectorAll(selector)];
    Object.assign(this, JSON.parse(this.at("script.payload").textContent));
    this.actionsNow = this.prompts.before;
    this.thresholds = { ...this.set };
    if (this.dials.length) this.outcomeSet = lookUp(this, this.set);
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

  /** What dial d reads of prompt i, and what it decides. */
  decision(d, i) {
    const p = this.read[d][i], tau = this.thresholds[this.dials[d]];
    const first = d > 0 && this.read[0][i] >= this.thresholds[this.dials[0]] + this.band;
    const did = first ? "left" : p >= tau + this.band ? "declined" : p < tau - this.band ? "permitted" : "left";
    return `${p.toFixed(3)}, ${did}`;
  }
}

for (const article of document.querySelectorAll("article.comparison")) new Charts(article);
const runs = [...document.querySelectorAll("article.run")].map((article) => new Run(article));
