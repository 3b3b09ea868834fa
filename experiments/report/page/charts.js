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
