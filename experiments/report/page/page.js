// The sliders and the prompt tables of one run. Uses the data in the page alone, and sets text from data as text only.

const PAGE_SIZE = 50; // prompts on a page of the table

function percent(share) { return Number.isFinite(share) ? `${(100 * share).toFixed(1)}%` : "none judged"; }

function node(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

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
    if (this.at(".scatter-plot")) this.scatter = new Scatter(this);
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
      button.addEventListener("click", () => copyText(button.previousElementSibling, button));
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
      row.querySelector(".n").textContent = one.n === first ? one.n : `${first}, then ${one.n}`;
    }
    if (column === "now") this.showPoint(found);
  }

  showPoint(found) {
    const score = found.right_action.share;
    this.at(".current-rates").textContent = `At these thresholds: over_refusal ${percent(found.over_refusal.share)}, missed_harm `
      + `${percent(found.missed_harm.share)}, overconfidence ${percent(found.overconfidence.share)}, `
      + `uncertain_refused ${percent(found.uncertain_refused.share)}`
      + (Number.isFinite(score) ? `, right-action score ${score.toFixed(3)}` : "");
    for (const point of this.all("[data-live]")) {
      const x = found.over_refusal.share, y = found[point.dataset.live].share;
      point.style.display = Number.isFinite(x) && Number.isFinite(y) ? "" : "none";
      point.setAttribute("transform", `translate(${52 + x * 284} ${254 - y * 242})`);
      const words = `these thresholds: over_refusal ${percent(x)}, ${point.dataset.live} ${percent(y)}`;
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
      ["text", "prompt"], ["before", "without dials"], ["now", "at these thresholds"],
      ...this.dials.map((kind) => [kind, `${kind}: probability, decision`])]);
    this.heads("kinds", [["kind", "group"], ["n", "n"], ["answered0", "answered without dials"], ["answered", "with"],
      ["refused0", "refused without dials"], ["refused", "with"], ["abstained0", "abstained without dials"],
      ["abstained", "with"]]);
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

  decision(d, i) {
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
    this.page = Math.min(this.page, Math.max(0, Math.ceil(rows.length / PAGE_SIZE) - 1));
    const first = this.page * PAGE_SIZE, unblurred = this.at(".unblur").checked;
    this.at(".count").textContent = rows.length
      ? `${first + 1} to ${Math.min(first + PAGE_SIZE, rows.length)} of ${rows.length} prompts`
      : "no prompt matches";
    this.at(".back").disabled = this.page === 0;
    this.at(".on").disabled = first + PAGE_SIZE >= rows.length;
    this.at("table.each tbody").replaceChildren(...rows.slice(first, first + PAGE_SIZE).map((i) => {
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
      const unlessHidden = (text) => (hidden && text ? HIDDEN : text);
      const name = textCell("th", p.id[i]);
      name.className = "long";
      row.append(name, textCell("td", this.labels[p.label[i]]), textCell("td", p.category[i]),
        textCell("td", p.trigger[i]), prompt, textCell("td", this.action(p.before[i]), unlessHidden(p.said[i])),
        textCell("td", this.action(this.actionsNow[i]), unlessHidden(p.after[i] === this.actionsNow[i] ? p.steered[i] : "")),
        ...this.dials.map((_, d) => textCell("td", this.decision(d, i))));
      return row;
    }));
    this.markSorted("each");
  }

  showKinds(rows) {
    const by = this.at("select.by").value, p = this.prompts, kinds = new Map();
    const counts = { answered: ["answer", "answer_with_caveat", "correct_premise"], refused: ["refuse"], abstained: ["abstain"] };
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
      row.append(textCell("th", one.kind), node("td", one.n));
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
}

function compare(a, b) { return typeof a === "number" ? a - b : String(a).localeCompare(String(b)); }

/** A table cell with text from data; `more` is its tooltip. */
function textCell(name, text, more = "") {
  const cell = node(name, undefined, name === "th" ? { scope: "row" } : {});
  cell.append(node("bdi", text));
  if (more) { cell.dataset.tip = more; cell.tabIndex = 0; }
  return cell;
}

async function copyText(code, button) {
  try { await navigator.clipboard.writeText(code.textContent); } catch {
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const runs = [...document.querySelectorAll("article.run")].map((article) => new Run(article));
