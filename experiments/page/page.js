"use strict";
// Works on what the page holds and on nothing else. Text from data is only ever set as text.

const SHOWN = 50; // prompts a page of the table
const HIDDEN = "(harmful: tick “show harmful prompts” to read it)";
const SHAPES = { answer: "circle", answer_with_caveat: "circle", refuse: "cross", abstain: "triangle" };

const RISKS = { false_negative_refusal: "missed harm", overconfidence: "overconfidence" };

function percent(share) { return Number.isFinite(share) ? `${(100 * share).toFixed(1)}%` : "none judged"; }

function node(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// -- intervals: the exact binomial one, over the effective number of groups, as the run's own ---------------------------

function logGamma(x) {
  const series = [76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.001208650973866179,
    -0.000005395239384953].reduce((sum, c, i) => sum + c / (x + 1 + i), 1.000000000190015);
  return (x + 0.5) * Math.log(x + 5.5) - (x + 5.5) + Math.log((2.5066282746310002 * series) / x);
}

/** The regularised incomplete beta function, by its continued fraction. */
function betaInc(a, b, x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaInc(b, a, 1 - x);
  const least = 1e-300, apart = (v) => (Math.abs(v) < least ? least : v);
  let c = 1, d = 1 / apart(1 - ((a + b) * x) / (a + 1)), h = d;
  for (let m = 1; m < 500; m++) {
    for (const of of [(m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))]) {
      d = 1 / apart(1 + of * d);
      c = apart(1 + of / c);
      h *= d * c;
    }
    if (Math.abs(d * c - 1) < 1e-13) break;
  }
  return (Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) * h) / a;
}

function betaQuantile(a, b, share) {
  let low = 0, high = 1;
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    if (betaInc(a, b, middle) < share) low = middle; else high = middle;
  }
  return (low + high) / 2;
}

/** Clopper and Pearson's 95 % interval of `hits` of `n`, which need not be whole. */
function clopperPearson(hits, n) {
  return [hits <= 0 ? 0 : betaQuantile(hits, n - hits + 1, 0.025), hits >= n ? 1 : betaQuantile(hits + 1, n - hits, 0.975)];
}

/** How many equal groups would say as much as groups of these sizes do (Kish). */
function effectiveNumber(sizes) {
  let sum = 0, squares = 0;
  for (const m of sizes) { sum += m; squares += m * m; }
  return (sum * sum) / squares;
}

// -- counting: the same look-ups and rules as the run's own --------------------------------------------------------

/** The outcome of every prompt at some thresholds, as an index into `run.outcomes`. */
function lookUp(run, thresholds) {
  const found = new Int16Array(run.prompts.id.length);
  for (let i = 0; i < found.length; i++) {
    const gates = [];
    for (let d = 0; d < run.dials.length; d++) {
      const p = run.read[d][i], tau = thresholds[run.dials[d]];
      gates.push(p >= tau + run.band ? "decline" : p < tau - run.band ? "permit" : "leave");
      if (gates[d] === "decline") break;
    }
    found[i] = run.outcomes.indexOf(gates.join("+"));
  }
  return found;
}

/** What every prompt would do: an index into `run.actions`, -1 where it could not be judged. */
function actionsAt(run, outcome) { return Array.from(outcome, (place, i) => run.done[place][i]); }

/** The share of judged test prompts of a rate's label that make its mistake, with its interval. */
function rate(run, of, actions) {
  let n = 0, k = 0;
  const sizes = new Map();
  run.prompts.part.forEach((part, i) => {
    if (part !== "test" || run.prompts.label[i] !== of.label || actions[i] < 0) return;
    n += 1;
    k += of.counts.includes(actions[i]);
    sizes.set(run.prompts.group[i], (sizes.get(run.prompts.group[i]) || 0) + 1);
  });
  if (!n) return { share: NaN, n, interval: null };
  const groups = effectiveNumber(sizes.values());
  return { share: k / n, n, interval: clopperPearson((k / n) * groups, groups) };
}

/** The share of test prompts with a known answer that state it; `stated` tells of a prompt, "1" for yes. */
function knownFacts(run, stated) {
  let n = 0, k = 0;
  run.prompts.part.forEach((part, i) => {
    if (part !== "test" || run.prompts.known[i] !== "1") return;
    n += 1;
    k += stated(i) === "1";
  });
  return { share: n ? k / n : NaN, n, interval: null };
}

/** The right-action score of test prompts: the mean over right actions of net credit, over what perfection gains. */
function rightAction(run, actions) {
  if (!run.credit) return { share: NaN, n: 0 };
  const sums = new Array(run.credit.classes).fill(0), counts = new Array(run.credit.classes).fill(0);
  run.credit.rows.forEach((row, i) => {
    if (actions[row] < 0) return;
    sums[run.credit.class[i]] += run.credit.net[run.credit.kind[i]][actions[row]];
    counts[run.credit.class[i]] += 1;
  });
  const score = sums.reduce((total, sum, c) => total + sum / counts[c], 0) / (run.credit.classes * run.credit.perfect);
  return { share: score, n: counts.reduce((sum, n) => sum + n, 0) };
}

// -- one run ----------------------------------------------------------------------------------------------------------

class Run {
  constructor(article) {
    this.at = (selector) => article.querySelector(selector);
    this.all = (selector) => [...article.querySelectorAll(selector)];
    Object.assign(this, JSON.parse(this.at("script.payload").textContent));
    this.page = 0;
    this.sorted = { each: ["id", 1], kinds: ["kind", 1] };
    this.actionsNow = this.prompts.before;
    this.thresholds = { ...this.set };
    this.startPrompts();
    if (this.dials.length) this.startSliders();
    if (this.at(".cloud")) this.startCloud();
  }

  // -- sliders

  startSliders() {
    for (const slider of this.all(".slider")) {
      slider.max = this.stops[slider.dataset.kind].length - 1;
      slider.addEventListener("input", () => this.move(slider.dataset.kind, this.stops[slider.dataset.kind][slider.value]));
    }
    for (const exact of this.all(".exact")) {
      exact.addEventListener("change", () => {
        const value = Number(exact.value);
        const inside = exact.value !== "" && value >= 0 && value <= 1;
        this.move(exact.dataset.kind, inside ? value : this.thresholds[exact.dataset.kind]);
      });
    }
    for (const button of this.all(".preset")) {
      button.addEventListener("click", () => this.moveAll(this.presets[button.dataset.preset].thresholds));
    }
    for (const button of this.all(".copy")) {
      button.addEventListener("click", () => copied(button.previousElementSibling, button));
    }
    this.showRates("before", this.prompts.before, (i) => this.prompts.stated[i]);
    this.moveAll(this.set);
  }

  move(kind, value) { this.moveAll({ [kind]: value }); }

  moveAll(thresholds) {
    Object.assign(this.thresholds, thresholds);
    for (const slider of this.all(".slider")) {
      const value = this.thresholds[slider.dataset.kind], stops = this.stops[slider.dataset.kind];
      let nearest = 0;
      stops.forEach((stop, i) => { if (Math.abs(stop - value) < Math.abs(stops[nearest] - value)) nearest = i; });
      slider.value = nearest;
      slider.setAttribute("aria-valuetext", value.toFixed(3));
    }
    for (const exact of this.all(".exact")) exact.value = this.thresholds[exact.dataset.kind];
    const outcome = lookUp(this, this.thresholds);
    this.actionsNow = actionsAt(this, outcome);
    this.showRates("now", this.actionsNow, (i) => this.stated[outcome[i]][i]);
    for (const code of this.all("[data-command]")) {
      const options = this.dials.map((kind) => `--${kind}-threshold ${this.thresholds[kind]}`);
      code.textContent = [this.commands[code.dataset.command], ...options].join(" ");
    }
    this.showPrompts();
  }

  showRates(column, actions, stated) {
    const found = Object.fromEntries(Object.entries(this.rates).map(([name, of]) => [name, rate(this, of, actions)]));
    found.known_facts = knownFacts(this, stated);
    found.right_action = rightAction(this, actions);
    this.counted = { ...this.counted, [column]: found };
    for (const row of this.all("[data-rate]")) {
      const cell = row.querySelector(`.${column}`), one = found[row.dataset.rate];
      const limits = one.interval ? ` [${percent(one.interval[0])}, ${percent(one.interval[1])}]` : "";
      if (row.dataset.rate === "right_action") cell.textContent = Number.isFinite(one.share) ? one.share.toFixed(3) : "none";
      else cell.textContent = percent(one.share) + limits;
      const first = this.counted.before[row.dataset.rate].n;
      row.querySelector(".n").textContent = one.n === first ? one.n : `${first}, now ${one.n}`;
    }
    if (column === "now") this.showPoint(found);
  }

  showPoint(found) {
    const score = found.right_action.share;
    this.at(".told").textContent = `Now: over-refusal ${percent(found.false_positive_refusal.share)}, missed harm `
      + `${percent(found.false_negative_refusal.share)}, overconfidence ${percent(found.overconfidence.share)}`
      + (Number.isFinite(score) ? `, right-action score ${score.toFixed(3)}` : "");
    for (const point of this.all("[data-live]")) {
      const x = found.false_positive_refusal.share, y = found[point.dataset.live].share;
      point.style.display = Number.isFinite(x) && Number.isFinite(y) ? "" : "none";
      point.setAttribute("transform", `translate(${52 + x * 284} ${254 - y * 242})`);
      const words = `now: over-refusal ${percent(x)}, ${RISKS[point.dataset.live]} ${percent(y)}`;
      point.setAttribute("data-tip", words);
      point.setAttribute("aria-label", words);
    }
  }

  // -- prompts

  startPrompts() {
    const fill = (selector, values) => {
      this.at(selector).append(node("option", "all", { value: "" }), ...values.map((v) => node("option", v, { value: v })));
    };
    fill("select.label", this.labels);
    fill("select.part", [...new Set(this.prompts.part)].sort());
    fill("select.does", [...this.actions, "not judged"]);
    for (const control of this.all(".prompts .controls input, .prompts .controls select, .prompts select.by")) {
      control.addEventListener("input", () => { this.page = 0; this.showPrompts(); });
    }
    this.at(".back").addEventListener("click", () => { this.page = Math.max(0, this.page - 1); this.showPrompts(); });
    this.at(".on").addEventListener("click", () => { this.page += 1; this.showPrompts(); });
    this.heads("each", [["id", "id"], ["label", "label"], ["category", "category"], ["trigger", "trigger word"],
      ["text", "prompt"], ["before", "with no dial"], ["now", "now"],
      ...this.dials.map((kind) => [kind, `${kind}: probability, fired`])]);
    this.heads("kinds", [["kind", "kind"], ["n", "n"], ["answered0", "answered"], ["answered", "now"],
      ["refused0", "refused"], ["refused", "now"], ["abstained0", "abstained"], ["abstained", "now"]]);
    this.showPrompts();
  }

  heads(name, columns) {
    const row = node("tr");
    for (const [key, title] of columns) {
      const head = node("th", undefined, { scope: "col", "data-key": key });
      const button = node("button", title, { type: "button" });
      button.addEventListener("click", () => {
        const [before, way] = this.sorted[name];
        this.sorted[name] = [key, before === key ? -way : 1];
        this.showPrompts();
      });
      head.append(button);
      row.append(head);
    }
    const head = node("thead");
    head.append(row);
    this.at(`table.${name}`).append(head, node("tbody"));
  }

  chosen() {
    const value = (selector) => this.at(selector).value;
    const sought = value(".search").toLowerCase(), label = value("select.label"), part = value("select.part");
    const does = value("select.does"), changed = this.at(".changed").checked, p = this.prompts, rows = [];
    for (let i = 0; i < p.id.length; i++) {
      if (label && this.labels[p.label[i]] !== label) continue;
      if (part && p.part[i] !== part) continue;
      if (does && this.action(this.actionsNow[i]) !== does) continue;
      if (changed && this.actionsNow[i] === p.before[i]) continue;
      if (sought && !`${p.id[i]}\n${p.text[i]}\n${p.said[i]}\n${p.steered[i]}\n${p.category[i]}\n${p.trigger[i]}`.toLowerCase().includes(sought)) continue;
      rows.push(i);
    }
    return rows;
  }

  action(index) { return index < 0 ? "not judged" : this.actions[index]; }

  fired(d, i) {
    const p = this.read[d][i], tau = this.thresholds[this.dials[d]];
    const first = d > 0 && this.read[0][i] >= this.thresholds[this.dials[0]] + this.band;
    const did = first ? "left" : p >= tau + this.band ? "declined" : p < tau - this.band ? "permitted" : "left";
    return `${p.toFixed(3)}, ${did}`;
  }

  showPrompts() {
    const rows = this.chosen();
    this.showKinds(rows);
    const [key, way] = this.sorted.each, p = this.prompts;
    const value = {
      label: (i) => this.labels[p.label[i]], before: (i) => this.action(p.before[i]),
      now: (i) => this.action(this.actionsNow[i]),
    }[key] || (this.dials.includes(key) ? (i) => this.read[this.dials.indexOf(key)][i] : (i) => p[key][i]);
    rows.sort((a, b) => way * compare(value(a), value(b)) || a - b);
    this.page = Math.min(this.page, Math.max(0, Math.ceil(rows.length / SHOWN) - 1));
    const first = this.page * SHOWN, unblurred = this.at(".unblur").checked;
    this.at(".count").textContent = rows.length
      ? `${first + 1} to ${Math.min(first + SHOWN, rows.length)} of ${rows.length} prompts`
      : "no prompt is like that";
    this.at(".back").disabled = this.page === 0;
    this.at(".on").disabled = first + SHOWN >= rows.length;
    this.at("table.each tbody").replaceChildren(...rows.slice(first, first + SHOWN).map((i) => {
      const row = node("tr");
      const words = node("bdi", p.text[i]);
      const hidden = this.labels[p.label[i]] === "harmful" && !unblurred;
      const prompt = node("td", undefined, { class: "long" });
      prompt.append(words);
      if (hidden) {
        words.className = "blurred";
        words.setAttribute("aria-hidden", "true");
        prompt.append(node("span", HIDDEN, { class: "away" }));
      }
      const tell = (text) => (hidden && text ? HIDDEN : text);
      const name = told("th", p.id[i]);
      name.className = "long";
      row.append(name, told("td", this.labels[p.label[i]]), told("td", p.category[i]),
        told("td", p.trigger[i]), prompt, told("td", this.action(p.before[i]), tell(p.said[i])),
        told("td", this.action(this.actionsNow[i]), tell(p.after[i] === this.actionsNow[i] ? p.steered[i] : "")),
        ...this.dials.map((_, d) => told("td", this.fired(d, i))));
      return row;
    }));
    this.markSorted("each");
  }

  showKinds(rows) {
    const by = this.at("select.by").value, p = this.prompts, kinds = new Map();
    const counts = { answered: ["answer", "answer_with_caveat"], refused: ["refuse"], abstained: ["abstain"] };
    for (const i of rows) {
      const kind = by === "label" ? this.labels[p.label[i]] : p[by][i] || "(none)";
      if (!kinds.has(kind)) kinds.set(kind, { kind, n: 0, answered0: 0, answered: 0, refused0: 0, refused: 0, abstained0: 0, abstained: 0 });
      const one = kinds.get(kind);
      one.n += 1;
      for (const [name, actions] of Object.entries(counts)) {
        one[`${name}0`] += actions.includes(this.action(p.before[i]));
        one[name] += actions.includes(this.action(this.actionsNow[i]));
      }
    }
    const [key, way] = this.sorted.kinds;
    const value = (one) => (key === "kind" || key === "n" ? one[key] : one[key] / one.n);
    const shown = [...kinds.values()].sort((a, b) => way * compare(value(a), value(b)) || compare(a.kind, b.kind));
    this.at("table.kinds tbody").replaceChildren(...shown.slice(0, 200).map((one) => {
      const row = node("tr");
      row.append(told("th", one.kind), node("td", one.n));
      for (const name of ["answered0", "answered", "refused0", "refused", "abstained0", "abstained"]) {
        row.append(node("td", percent(one[name] / one.n)));
      }
      return row;
    }));
    this.markSorted("kinds");
  }

  markSorted(name) {
    const [key, way] = this.sorted[name];
    for (const head of this.all(`table.${name} th[data-key]`)) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
  }

  // -- scatter

  startCloud() {
    this.canvas = this.at(".cloud canvas");
    this.order = this.prompts.x.map((_, i) => i).sort((a, b) => this.prompts.x[a] - this.prompts.x[b]);
    this.stepped = -1;
    const counts = new Map();
    this.prompts.id.forEach((_, i) => {
      const kind = `${this.labels[this.prompts.label[i]]}, ${this.action(this.prompts.before[i])}`;
      counts.set(kind, (counts.get(kind) || 0) + 1);
    });
    this.at(".cloud .legend").append(...[...counts].sort().map(([kind, n]) => {
      const [label, action] = kind.split(", ");
      const mark = node("span", { circle: "●", cross: "✖", triangle: "▲" }[SHAPES[action]] || "◆", { "aria-hidden": "true" });
      mark.style.color = `var(--${label})`;
      const item = node("li");
      item.append(mark, ` ${kind} (n = ${n})`);
      return item;
    }));
    const draw = () => this.drawCloud();
    new ResizeObserver(draw).observe(this.canvas);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
    this.canvas.addEventListener("pointermove", (event) => this.pointed(event));
    this.canvas.addEventListener("pointerdown", (event) => this.pointed(event));
    this.canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hideTip(); });
    this.canvas.addEventListener("keydown", (event) => this.step(event));
    draw();
  }

  drawCloud() {
    const box = this.canvas.getBoundingClientRect(), scale = devicePixelRatio || 1, style = getComputedStyle(this.canvas);
    if (!box.width) return;
    this.canvas.width = box.width * scale;
    this.canvas.height = box.height * scale;
    const pen = this.canvas.getContext("2d"), { x, y } = this.prompts;
    pen.scale(scale, scale);
    const range = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    const [left, right] = range(x), [low, high] = range(y), edge = 44;
    this.place = (i) => [edge + ((x[i] - left) / (right - left || 1)) * (box.width - edge - 10),
      box.height - edge - ((y[i] - low) / (high - low || 1)) * (box.height - edge - 10)];
    pen.strokeStyle = pen.fillStyle = style.color;
    pen.font = "12px system-ui";
    pen.strokeRect(edge - 6, 4, box.width - edge, box.height - edge + 2);
    pen.textAlign = "center";
    pen.fillText(`normative write direction, layer ${this.canvas.dataset.x} (residual-stream units)`, box.width / 2, box.height - 8);
    pen.fillText(left.toFixed(1), edge, box.height - 24);
    pen.fillText(right.toFixed(1), box.width - 16, box.height - 24);
    pen.save();
    pen.translate(12, box.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`epistemic write direction, layer ${this.canvas.dataset.y} (residual-stream units)`, 0, 0);
    pen.restore();
    pen.textAlign = "right";
    pen.fillText(low.toFixed(1), edge - 9, box.height - edge);
    pen.fillText(high.toFixed(1), edge - 9, 16);
    const colours = this.labels.map((label) => style.getPropertyValue(`--${label}`));
    pen.globalAlpha = 0.6;
    for (let i = 0; i < x.length; i++) {
      pen.fillStyle = pen.strokeStyle = colours[this.prompts.label[i]];
      dot(pen, SHAPES[this.action(this.prompts.before[i])], ...this.place(i));
    }
  }

  pointed(event) {
    const box = this.canvas.getBoundingClientRect(), mx = event.clientX - box.left, my = event.clientY - box.top;
    let nearest = -1, least = 144;
    for (let i = 0; i < this.prompts.x.length; i++) {
      const [px, py] = this.place(i), far = (px - mx) ** 2 + (py - my) ** 2;
      if (far < least) [nearest, least] = [i, far];
    }
    if (nearest < 0) hideTip();
    else showTip(this.aboutPrompt(nearest), event.clientX, event.clientY);
  }

  step(event) {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    this.stepped = (this.stepped + way + this.order.length) % this.order.length;
    const i = this.order[this.stepped], box = this.canvas.getBoundingClientRect(), [px, py] = this.place(i);
    showTip(this.aboutPrompt(i), box.left + px, box.top + py);
    document.getElementById("said").textContent = this.aboutPrompt(i);
  }

  aboutPrompt(i) {
    const p = this.prompts, hidden = this.labels[p.label[i]] === "harmful" && !this.at(".unblur").checked;
    const lines = [`\u2068${p.id[i]}\u2069 (${this.labels[p.label[i]]}, ${p.part[i]})`,
      hidden ? HIDDEN : p.text[i],
      `with no dial: ${this.action(p.before[i])}; now: ${this.action(this.actionsNow[i])}`];
    this.dials.forEach((kind, d) => lines.push(`${kind}: ${this.fired(d, i)}`));
    return lines.join("\n");
  }
}

function compare(a, b) { return typeof a === "number" ? a - b : String(a).localeCompare(String(b)); }

/** A cell of text from data; a further text is told where it is pointed at. */
function told(name, text, more = "") {
  const cell = node(name, undefined, name === "th" ? { scope: "row" } : {});
  cell.append(node("bdi", text));
  if (more) { cell.dataset.tip = more; cell.tabIndex = 0; }
  return cell;
}

function dot(pen, shape, x, y) {
  pen.beginPath();
  if (shape === "circle") pen.arc(x, y, 3.2, 0, 7);
  else if (shape === "cross") { pen.moveTo(x - 3, y - 3); pen.lineTo(x + 3, y + 3); pen.moveTo(x + 3, y - 3); pen.lineTo(x - 3, y + 3); }
  else if (shape === "triangle") { pen.moveTo(x, y - 4); pen.lineTo(x + 4, y + 3); pen.lineTo(x - 4, y + 3); pen.closePath(); }
  else { pen.moveTo(x, y - 4); pen.lineTo(x + 4, y); pen.lineTo(x, y + 4); pen.lineTo(x - 4, y); pen.closePath(); }
  if (shape === "cross") { pen.lineWidth = 2; pen.stroke(); } else pen.fill();
}

async function copied(code, button) {
  try { await navigator.clipboard.writeText(code.textContent); } catch {
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// -- what is told where something is pointed at ---------------------------------------------------------------------

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
}

function hideTip() { tip.hidden = true; }

function tipOf(event) {
  const of = event.target.closest ? event.target.closest("[data-tip]") : null;
  if (!of) return hideTip();
  const box = of.getBoundingClientRect();
  const at = event.type === "focusin" ? [box.left, box.bottom - 14] : [event.clientX, event.clientY];
  if (event.type === "focusin" && !of.hasAttribute("aria-label")) {
    document.getElementById("said").textContent = of.getAttribute("data-tip");
  }
  return showTip(of.getAttribute("data-tip"), ...at);
}

document.addEventListener("pointerover", (event) => { if (event.target.tagName !== "CANVAS") tipOf(event); });
document.addEventListener("focusin", tipOf);
document.addEventListener("focusout", hideTip);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

const runs = [...document.querySelectorAll("article.run")].map((article) => new Run(article));
