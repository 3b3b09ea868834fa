// The prompts of one run: filters, shares by group, and a row a prompt that opens. Text from data is set as text only.

const PAGE_SIZE = 20; // prompts on a page of the list
const HIDDEN = "(harmful: tick “show harmful prompts” to read it)";
const SHARES = [["kind", "group"], ["n", "n"], ["answered0", "answered without dials, %"], ["answered", "now, %"],
  ["refused0", "refused without dials, %"], ["refused", "now, %"], ["abstained0", "abstained without dials, %"], ["abstained", "now, %"]];

class PromptList {
  constructor(run) {
    this.run = run;
    this.page = 0;
    this.sortedKinds = ["kind", 1];
    this.shown = new Set(); // harmful prompts that the reader opened one by one
    const p = run.prompts, names = (values) => [...new Set(values)].filter(Boolean).sort();
    this.fill("select.part", [["", "all parts"], ...names(p.part).map((v) => [v, v])], p.part.includes("test") ? "test" : "");
    this.fill("select.label", [["", "all"], ...run.labels.map((v) => [v, v])]);
    this.fill("select.category", [["", "all"], ...names(p.category).map((v) => [v, v])]);
    this.fill("select.trigger", [["", "any or none"], ["-", "none"], ...names(p.trigger).map((v) => [`=${v}`, v])]);
    this.fill("select.change", [["changed", "changed by the dials"]], "changed");
    this.fill("select.sort", [["id", "id"], ["label", "label"], ["category", "category"], ["change", "action, before and now"],
      ...run.dials.flatMap((kind, d) => [[`${d}-`, `${kind} reading, highest first`], [`${d}+`, `${kind} reading, lowest first`]])]);
    for (const control of run.all(".prompts .filters input, .prompts .filters select, .prompts select.by")) {
      control.addEventListener("input", () => { this.page = 0; this.show(); });
    }
    run.at(".back").addEventListener("click", () => { this.page = Math.max(0, this.page - 1); this.show(); });
    run.at(".on").addEventListener("click", () => { this.page += 1; this.show(); });
    this.headKinds();
  }

  fill(selector, options, value = "") {
    const select = this.run.at(selector);
    select.replaceChildren(...options.map(([key, text]) => node("option", text, { value: key })));
    select.value = options.some(([key]) => key === value) ? value : options[0][0];
  }

  change(i) {
    const before = this.run.action(this.run.prompts.before[i]);
    return this.run.dials.length ? `${before} → ${this.run.action(this.run.actionsNow[i])}` : before;
  }

  /** Offer each pair of actions that some prompt has at these thresholds, and keep what was chosen. */
  offerChanges(first) {
    const run = this.run, counts = new Map();
    run.prompts.id.forEach((_, i) => counts.set(this.change(i), (counts.get(this.change(i)) || 0) + 1));
    const chosen = run.at("select.change").value, changes = [...counts.keys()].sort();
    const some = run.prompts.part.some((part, i) => run.actionsNow[i] !== run.prompts.before[i] && (part === "test" || !first));
    if (chosen && chosen !== "changed" && !counts.has(chosen)) changes.push(chosen);
    const dials = run.dials.length ? [["changed", "changed by the dials"]] : [];
    this.fill("select.change", [["", "all"], ...dials, ...changes.map((v) => [v, v])], first && !some ? "" : chosen);
  }

  chosen() {
    const run = this.run, p = run.prompts, rows = [], value = (selector) => run.at(selector).value;
    const sought = value(".search").toLowerCase(), label = value("select.label"), part = value("select.part");
    const change = value("select.change"), category = value("select.category"), trigger = value("select.trigger");
    for (let i = 0; i < p.id.length; i++) {
      if (label && run.labels[p.label[i]] !== label) continue;
      if (part && p.part[i] !== part) continue;
      if (category && p.category[i] !== category) continue;
      if (trigger && (trigger === "-" ? p.trigger[i] : `=${p.trigger[i]}` !== trigger)) continue;
      if (change === "changed" ? run.actionsNow[i] === p.before[i] : change && this.change(i) !== change) continue;
      if (sought && !`${p.id[i]}\n${p.text[i]}\n${p.said[i]}\n${p.steered[i]}\n${p.category[i]}\n${p.trigger[i]}`.toLowerCase().includes(sought)) continue;
      rows.push(i);
    }
    return rows;
  }

  show() {
    const run = this.run, p = run.prompts, rows = this.chosen(), key = run.at("select.sort").value;
    this.showKinds(rows);
    const value = { id: (i) => p.id[i], label: (i) => run.labels[p.label[i]], category: (i) => p.category[i], change: (i) => this.change(i) }[key]
      || ((i) => (key[1] === "-" ? -1 : 1) * run.read[key[0]][i]);
    rows.sort((a, b) => compare(value(a), value(b)) || a - b);
    this.page = Math.min(this.page, Math.max(0, Math.ceil(rows.length / PAGE_SIZE) - 1));
    const first = this.page * PAGE_SIZE;
    run.at(".count").textContent = rows.length
      ? `${first + 1} to ${Math.min(first + PAGE_SIZE, rows.length)} of ${rows.length} prompts`
      : "no prompt matches";
    run.at(".back").disabled = this.page === 0;
    run.at(".on").disabled = first + PAGE_SIZE >= rows.length;
    run.at(".each").replaceChildren(...rows.slice(first, first + PAGE_SIZE).map((i) => this.row(i)));
  }

  hides(i) { return this.run.labels[this.run.prompts.label[i]] === "harmful" && !this.run.at(".unblur").checked && !this.shown.has(i); }

  unlessHidden(i, text) { return this.hides(i) && text ? HIDDEN : text; }

  // -- a row

  row(i) {
    const run = this.run, p = run.prompts, row = node("details", undefined, { class: "prompt" }), line = node("summary");
    const words = node("bdi", p.text[i]), text = node("span", undefined, { class: "text" });
    text.append(words);
    if (this.hides(i)) {
      words.className = "blurred";
      words.setAttribute("aria-hidden", "true");
      text.append(node("span", HIDDEN, { class: "away" }));
    }
    const label = run.labels[p.label[i]], did = node("span", undefined, { class: "did" });
    did.append(this.actionMark(p.before[i]));
    if (run.dials.length) did.append(" → ", this.actionMark(run.actionsNow[i]));
    line.append(node("span", label, { class: `label ${label}` }), text, did, quoted("span", p.id[i], { class: "id" }));
    row.append(line);
    row.fill = () => { if (row.open && row.children.length === 1) row.append(this.inside(i, row)); };
    row.addEventListener("toggle", row.fill);
    return row;
  }

  actionMark(action) { return node("span", this.run.action(action), { class: `action ${this.run.action(action).replaceAll(" ", "_")}` }); }

  inside(i, row) {
    const run = this.run, p = run.prompts, body = node("div", undefined, { class: "inside" });
    const facts = [["prompt", quoted("p", this.unlessHidden(i, p.text[i]))], ["without dials", this.completion(i, p.before[i], p.said[i], p.why[i])]];
    if (run.dials.length) {
      facts.push(["at these thresholds", this.completionNow(i)]);
      run.dials.forEach((kind, d) => facts.push([`${kind} dial`, this.reading(d, i)]));
    }
    if (p.tokens[i] && !this.hides(i)) facts.push(["dials at every token", this.tokens(i)]);
    if (p.words[i] && !this.hides(i)) facts.push(["words that raise refusing, nats", this.words(p.words[i])]);
    facts.push(["about", quoted("p", [`label ${run.labels[p.label[i]]}`, `part ${p.part[i]}`, p.category[i] && `category ${p.category[i]}`,
      p.trigger[i] && `trigger word ${p.trigger[i]}`].filter(Boolean).join(", "))]);
    const logs = Object.entries(run.inspect.logs).filter(([name]) => name === "before" || name === "with_dials");
    if (logs.length && p.part[i] === "test") {
      const links = node("p"), sample = `samples/sample/${encodeURIComponent(p.id[i])}/1`;
      for (const [name, address] of logs) links.append(node("a", name, { href: `${address}/${sample}` }), " ");
      facts.push(["in Inspect's viewer", links]);
    }
    const list = node("dl");
    for (const [name, shown] of facts) { const told = node("dd"); told.append(shown); list.append(node("dt", name), told); }
    body.append(list);
    if (this.hides(i)) {
      const button = node("button", "Show this harmful prompt", { type: "button" });
      button.addEventListener("click", () => { this.shown.add(i); const next = this.row(i); row.replaceWith(next); next.open = true; });
      body.append(button);
    }
    return body;
  }

  completion(i, action, text, why) {
    const block = node("div");
    block.append(this.actionMark(action), quoted("blockquote", this.unlessHidden(i, text) || "(empty)"));
    if (why) block.append(quoted("p", `judged by: ${this.unlessHidden(i, why)}`, { class: "why" }));
    return block;
  }

  /** The completion at the sliders' thresholds; a run stores the texts of its own thresholds, and every action. */
  completionNow(i) {
    const run = this.run, p = run.prompts;
    if (run.gates(i).every((gate) => gate === "leave")) return this.completion(i, p.before[i], p.said[i], p.why[i]);
    if (p.steered[i] && run.outcome[i] === run.outcomeSet[i]) return this.completion(i, run.actionsNow[i], p.steered[i], p.why_steered[i]);
    const block = node("div");
    block.append(this.actionMark(run.actionsNow[i]), node("p", "A run stores the texts of test prompts at its own thresholds; here, the action alone.", { class: "why" }));
    return block;
  }

  reading(d, i) {
    const run = this.run, bar = node("span", undefined, { class: "reading", "aria-hidden": "true" });
    const fill = node("span", undefined, { class: "fill" }), mark = node("span", undefined, { class: "mark" });
    fill.style.width = `${100 * run.read[d][i]}%`;
    mark.style.left = `${100 * run.threshold(d)}%`;
    bar.append(fill, mark);
    const line = node("p", `${run.decision(d, i)} at threshold ${digits(run.threshold(d))} `);
    line.append(bar);
    return line;
  }

  /** The tokens of a prompt, coloured by what each dial's probe reads at them. */
  tokens(i) {
    const run = this.run, [texts, kept, left, byDial] = run.prompts.tokens[i], ours = run.dials.map((_, d) => d).filter((d) => byDial[d]);
    const reads = ours.map((d) => decoded(byDial[d][0]));
    const tokens = texts.map((text, k) => ({
      text, part: k < kept ? "the user's words" : "template", logOdds: reads.map((of) => of[k]),
      readBy: ours.map((d) => (byDial[d][1].includes(k) ? byDial[d][2] : 0)), probability: ours.map((d) => run.read[d][i]),
    }));
    const block = tokenLines(tokens, ours.map((d) => run.dials[d]));
    if (left) block.append(node("p", `${left} more tokens of the user's words are left out.`, { class: "why" }));
    return block;
  }

  words(scored) {
    const line = node("p");
    for (const [word, score] of scored) {
      const shown = quoted(score >= 1 ? "mark" : "span", word);
      if (score >= 1) shown.append(node("small", ` ${score > 0 ? "+" : ""}${score.toFixed(1)}`));
      line.append(shown, " ");
    }
    return line;
  }

  /** Show one prompt, opened, whatever the filters were. */
  open(i) {
    for (const selector of ["part", "label", "category", "trigger", "change"]) this.run.at(`select.${selector}`).value = "";
    this.run.at(".search").value = this.run.prompts.id[i];
    this.page = 0;
    this.show();
    const row = this.run.at(".each details");
    if (!row) return;
    row.open = true;
    row.scrollIntoView({ block: "center" });
    row.querySelector("summary").focus();
  }

  // -- shares by group

  headKinds() {
    const row = node("tr"), head = node("thead");
    for (const [key, title] of SHARES) {
      const cell = node("th", undefined, { scope: "col", "data-key": key }), button = node("button", title, { type: "button" });
      button.addEventListener("click", () => { this.sortedKinds = [key, this.sortedKinds[0] === key ? -this.sortedKinds[1] : 1]; this.show(); });
      cell.append(button);
      row.append(cell);
    }
    head.append(row);
    this.run.at("table.kinds").append(head, node("tbody"));
  }

  showKinds(rows) {
    const run = this.run, by = run.at("select.by").value, p = run.prompts, kinds = new Map();
    for (const i of rows) {
      const kind = by === "label" ? run.labels[p.label[i]] : p[by][i] || "(none)";
      if (!kinds.has(kind)) kinds.set(kind, { kind, n: 0, answered0: 0, answered: 0, refused0: 0, refused: 0, abstained0: 0, abstained: 0 });
      const one = kinds.get(kind);
      one.n += 1;
      for (const [name, actions] of Object.entries(run.behaviours)) {
        one[`${name}0`] += actions.includes(p.before[i]);
        one[name] += actions.includes(run.actionsNow[i]);
      }
    }
    run.at(".selected").textContent = `${rows.length} prompts (${run.at("select.part").value || "all parts"})`;
    const [key, way] = this.sortedKinds, value = (one) => (key === "kind" || key === "n" ? one[key] : one[key] / one.n);
    const shown = [...kinds.values()].sort((a, b) => way * compare(value(a), value(b)) || compare(a.kind, b.kind));
    run.at("table.kinds tbody").replaceChildren(...shown.slice(0, 200).map((one) => {
      const row = node("tr");
      row.append(quoted("th", one.kind, { scope: "row" }), node("td", one.n));
      for (const [name] of SHARES.slice(2)) row.append(node("td", ((100 * one[name]) / one.n).toFixed(1)));
      return row;
    }));
    for (const head of run.all("table.kinds th[data-key]")) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
  }
}
