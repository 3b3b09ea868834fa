// A conversation with the server as a tree: a turn holds a prompt and the answers to it, one for each pair of thresholds;
// a later turn goes on from one answer, without the thought in it. Text from people and from the model is set as text only.

const DECIDED = { decline: "declined", permit: "permitted", leave: "left alone" };
const PARTS = { words: "the user's words", template: "template", answer: "answer" };
const POSITIONS = { post_last: "the last token of the prompt", inst_last: "the last token of the user's words", inst_mean: "the mean over the user's words" };
const LOOK = 5000; // milliseconds between looks at what was asked
const WAIT = 400; // milliseconds without a move until a moved threshold is asked for

const byId = (id) => document.getElementById(id);

class Live {
  constructor() {
    this.key = "";
    this.answers = []; // in the order in which they came; their number is their place plus one
    this.current = null; // the answer that the next prompt goes on from
    this.turns = 0;
    this.queue = Promise.resolve(); // requests, one after the other
    this.under = 0; // requests under way
    this.picks = 0; // how often the reader chose an answer to go on from
    this.stopped = new AbortController(); // of the requests since the last stop
    byId("stop").addEventListener("click", () => { this.stopped.abort(); this.stopped = new AbortController(); });
    byId("key").addEventListener("submit", (event) => { event.preventDefault(); this.key = byId("key").querySelector("input").value; this.open(); });
    byId("ask").addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
    byId("prompt").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); byId("ask").requestSubmit(); } });
    byId("again").addEventListener("click", () => this.again());
    byId("watch").addEventListener("toggle", () => this.watch());
    setInterval(() => this.watch(), LOOK);
    this.showPath();
    this.open();
  }

  // -- the server

  /** Ask the server; an error is thrown with one line for the reader. */
  async fetch(path, body, signal) {
    const headers = { "Content-Type": "application/json", ...(this.key && { Authorization: `Bearer ${this.key}` }) };
    let reply, found;
    try {
      reply = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers });
    } catch (error) { throw error.name === "AbortError" ? error : new Error("The server does not answer; is it still running?"); }
    try { found = await reply.json(); } catch (error) { throw error.name === "AbortError" ? error : new Error(`The server sent no answer (status ${reply.status}).`); }
    if (reply.status === 401) byId("key").hidden = false;
    if (!reply.ok) throw new Error(found.error ? found.error.message : `The server refused the request (status ${reply.status}).`);
    return found;
  }

  showError(text) {
    byId("error").hidden = !text;
    byId("error").textContent = text;
  }

  /** Learn the model and its dials; again once a key is given. */
  async open() {
    try { [this.card] = (await this.fetch("/v1/models")).data; } catch (error) { this.showError(error.message); return; }
    this.showError("");
    byId("key").hidden = true;
    byId("model").textContent = this.card.id;
    this.dials = Object.keys(this.card.dials);
    this.readers = this.dials.filter((kind) => this.card.dials[kind].read);
    this.thresholds = Object.fromEntries(this.dials.map((kind) => [kind, this.card.dials[kind].threshold]));
    this.off = new Set();
    this.byCategory = new Set(this.dials.filter((kind) => Object.keys(this.card.dials[kind].category_thresholds).length)); // until moved
    byId("base").hidden = this.dials.length > 0;
    byId("moving").hidden = !this.dials.length;
    byId("thresholds").replaceChildren(...this.dials.map((kind) => this.slider(kind)));
    this.dials.forEach((kind) => this.place(kind));
    byId("watch").hidden = !this.readers.length;
    this.explain();
  }

  // -- thresholds

  slider(kind) {
    const made = node("div", undefined, { class: "slider-of live", "data-kind": kind });
    const range = node("input", undefined, { type: "range", id: `${kind}-slider`, min: 0, max: 1, step: "any", class: "slider" });
    const exact = node("input", undefined, { type: "number", min: 0, max: 1, step: "any", class: "exact", "aria-label": `${kind} threshold, as a number` });
    const off = node("label"), tick = node("input", undefined, { type: "checkbox", class: "off", "aria-label": `${kind} dial off` });
    off.append(tick, " off");
    const own = node("label"), category = node("input", undefined, { type: "checkbox", class: "by-category", "aria-label": `${kind} threshold by category` });
    own.append(category, " by category");
    category.checked = this.byCategory.has(kind);
    own.title = "A prompt of a recognised category is decided by that category's threshold, others by this one; moving it decides all by it.";
    category.addEventListener("change", () => {
      if (category.checked) { this.byCategory.add(kind); this.thresholds[kind] = this.card.dials[kind].threshold; } else this.byCategory.delete(kind);
      this.place(kind);
      this.moved();
    });
    range.addEventListener("input", () => this.move(kind, Math.round(1000 * Number(range.value)) / 1000));
    exact.addEventListener("change", () => {
      const value = Number(exact.value);
      this.move(kind, exact.value !== "" && value >= 0 && value <= 1 ? value : this.thresholds[kind]);
    });
    tick.addEventListener("change", () => {
      if (tick.checked) this.off.add(kind); else this.off.delete(kind);
      range.disabled = exact.disabled = tick.checked;
      this.moved();
    });
    made.append(node("label", `${kind} threshold`, { for: range.id }), range, exact, off, ...(category.checked ? [own] : []));
    return made;
  }

  place(kind) {
    const [range, exact] = document.querySelectorAll(`[data-kind=${kind}] .slider, [data-kind=${kind}] .exact`);
    range.value = this.thresholds[kind];
    range.setAttribute("aria-valuetext", digits(this.thresholds[kind]));
    exact.value = digits(this.thresholds[kind]);
    const category = document.querySelector(`[data-kind=${kind}] .by-category`);
    if (category) category.checked = this.byCategory.has(kind);
  }

  move(kind, value) {
    const same = value === this.thresholds[kind] && !this.byCategory.has(kind);
    this.thresholds[kind] = value;
    this.byCategory.delete(kind);
    this.place(kind);
    if (!same) this.moved();
  }

  /** Answer the current turn again, once the thresholds rest. */
  moved() {
    clearTimeout(this.waiting);
    if (this.current && byId("moving").querySelector("input").checked) this.waiting = setTimeout(() => this.again(), WAIT);
  }

  /** The thresholds of the next request, by dial: a number, "off", or null for those by category, which the server has. */
  chosen() { return Object.fromEntries(this.dials.map((kind) => [kind, this.off.has(kind) ? "off" : this.byCategory.has(kind) ? null : this.thresholds[kind]])); }

  // -- asking

  /** Send the prompt after the current answer, as a new turn. */
  ask() {
    const text = byId("prompt").value, after = this.current;
    if (!this.card) { this.open(); return; }
    if (!text.trim() || this.asking) return;
    this.asking = true; // until it is answered; new answers to earlier turns may wait in the queue
    const turn = { text, after, answers: [], number: 0 };
    this.request(turn, () => {
      turn.number = this.turns += 1;
      this.showTurn(turn);
      if (byId("prompt").value === text) byId("prompt").value = "";
    });
  }

  /** Answer the current turn at the thresholds of the moment, or show the answer that it has for them. */
  again() {
    clearTimeout(this.waiting);
    if (!this.current) return;
    const turn = this.current.turn, known = this.known(turn, this.chosen());
    if (known) this.select(known); else this.request(turn);
  }

  known(turn, thresholds) { return turn.answers.find((answer) => JSON.stringify(answer.thresholds) === JSON.stringify(thresholds)); }

  messages(turn) {
    const before = turn.after ? [...this.messages(turn.after.turn), { role: "assistant", content: turn.after.spoken }] : [];
    return [...before, { role: "user", content: turn.text }];
  }

  /** Request one answer, after those that are under way; `first` is called before the first answer of a new turn is shown. */
  request(turn, first) {
    const thresholds = this.chosen(), { signal } = this.stopped, picks = this.picks;
    this.wait(1);
    this.queue = this.queue.then(async () => {
      try { if (!signal.aborted && !this.known(turn, thresholds)) await this.answer(turn, thresholds, signal, first); } catch (error) {
        if (error.name !== "AbortError") this.showError(error.message);
        byId("status").textContent = "";
      }
      if (first) this.asking = false;
      const answer = this.known(turn, thresholds), elsewhere = picks !== this.picks || (!first && this.current.turn !== turn);
      if (answer && !elsewhere) this.select(answer);
      if (answer && !elsewhere && first) turn.element.scrollIntoView({ block: "nearest" });
      this.wait(-1);
    });
  }

  /** Count the requests under way, and show whether there are any. */
  wait(more) {
    this.under += more;
    byId("busy").hidden = !this.under;
    byId("busy").querySelector("span").textContent = this.under > 1 ? `answering \u2026 (${this.under} answers to come)` : "answering \u2026";
    byId("tree").setAttribute("aria-busy", this.under > 0);
  }

  /** Ask the server for one answer, and show it. */
  async answer(turn, thresholds, signal, first) {
    this.showError("");
    byId("status").textContent = "answering \u2026";
    const body = { model: this.card.id, messages: this.messages(turn) };
    for (const kind of this.dials) if (thresholds[kind] !== null) body[`${kind}_threshold`] = thresholds[kind];
    if (this.readers.length) body.token_readings = true;
    const [choice] = (await this.fetch("/v1/chat/completions", body, signal)).choices;
    const tokens = (choice.token_readings || []).map((token) => this.token(token, choice));
    if (first) { turn.tokens = tokens.filter((token) => token.part !== PARTS.answer); first(); }
    const { reasoning_content: thought, content: spoken } = choice.message;
    const text = thought ? `<think>\n${thought}${spoken && "\n</think>\n\n"}${spoken}` : spoken;
    const answer = { turn, thresholds, text, spoken, finish: choice.finish_reason, dials: choice.dials,
      tokens: tokens.filter((token) => token.part === PARTS.answer) };
    turn.answers.push(answer);
    answer.number = this.answers.push(answer);
    this.showAnswer(answer);
    byId("status").textContent = `answer ${answer.number}: ${spoken || text}`;
  }

  /** A token of the reply as `tokenLines` takes it. */
  token({ token, part, log_odds: logOdds, read_by: by }, choice) {
    const among = (kind) => choice.token_readings.filter((of) => of.read_by.includes(kind)).length;
    return { text: token, part: PARTS[part], logOdds: this.readers.map((kind) => logOdds[kind]),
      readBy: this.readers.map((kind) => (by.includes(kind) ? among(kind) : 0)), probability: this.readers.map((kind) => choice.dials[kind].probability) };
  }

  // -- the tree

  showTurn(turn) {
    turn.element = node("section", undefined, { class: "turn", "aria-label": `turn ${turn.number}` });
    const head = node("h2", `Turn ${turn.number} `);
    if (turn.after) head.append(node("small", `after answer ${turn.after.number}`));
    turn.row = node("div", undefined, { class: "answers" });
    turn.element.append(head, quoted("blockquote", turn.text));
    if (turn.tokens.length) turn.element.append(tokenLines(turn.tokens, this.readers));
    turn.element.append(turn.row);
    (turn.after ? turn.after.turn.element : byId("tree")).append(turn.element);
  }

  showAnswer(answer) {
    const made = node("article", undefined, { class: "answer-of", "aria-label": `answer ${answer.number}` });
    const at = Object.entries(answer.thresholds).map(([kind, value]) => `${kind} ${value === "off" ? "off" : value === null ? this.looked(answer.dials[kind]) : digits(value)}`).join(", ");
    made.append(node("h3", `Answer ${answer.number}`));
    if (at) made.append(node("p", `thresholds: ${at}`, { class: "at" }));
    for (const [kind, read] of Object.entries(answer.dials)) made.append(this.decision(kind, read));
    made.append(quoted("blockquote", answer.text || "(empty)"));
    if (answer.finish === "length") made.append(node("p", "The answer is cut at the server's limit.", { class: "note" }));
    if (answer.tokens.length) made.append(tokenLines(answer.tokens, this.readers));
    if (answer.spoken.trim()) {
      const button = node("button", "Go on from here", { type: "button", "aria-label": `Go on from answer ${answer.number}` });
      button.addEventListener("click", () => { this.pick(answer); byId("prompt").focus(); });
      made.append(button);
    } else made.append(node("p", answer.text.trim() ? "The answer ends within its thought, so no prompt can follow it." : "No prompt can follow an empty answer.", { class: "note" }));
    answer.element = made;
    answer.turn.row.append(made);
  }

  /** The threshold that the server took for a prompt, and whose it is. */
  looked({ threshold, category }) { return `${digits(threshold)} (${category === null ? "no category with its own" : `category ${category}`})`; }

  /** What a dial read where it reads, and what it did. */
  decision(kind, read) {
    const line = node("p", `${kind}: probability ${digits(read.probability)}, `, { class: `decision ${read.gate}` });
    if (read.threshold === null) line.append("off");
    else line.append(node("b", DECIDED[read.gate]), read.overruled ? " since the normative dial declined" : "");
    return line;
  }

  /** Go on from an answer that the reader chose; answers that are under way leave it so. */
  pick(answer) {
    this.picks += 1;
    this.select(answer);
  }

  select(answer) {
    this.current = answer;
    for (const other of this.answers) other.element.setAttribute("aria-current", other === answer);
    byId("again").disabled = !answer;
    this.showPath();
  }

  /** The way from the start to the current answer; each step can be gone back to. */
  showPath() {
    const way = [], list = node("ol"), step = (name, answer) => {
      const item = node("li"), button = node("button", name, { type: "button" });
      if (answer === this.current) button.setAttribute("aria-current", "step");
      button.addEventListener("click", () => this.pick(answer));
      item.append(button);
      list.append(item);
    };
    for (let answer = this.current; answer; answer = answer.turn.after) way.unshift(answer);
    step("new conversation", null);
    for (const answer of way) step(`answer ${answer.number}`, answer);
    byId("path").replaceChildren("The next prompt goes on from: ", list);
  }

  // -- what was asked, by anybody

  async watch() {
    if (!byId("watch").open || byId("watch").hidden) return;
    let found;
    try { found = await this.fetch("/watch"); } catch { return; } // the next look may succeed
    byId("watch").querySelector("div").replaceChildren(...Object.entries(found).map(([kind, state]) => this.watched(kind, state)));
  }

  /** One dial: whether its reads have changed, reads against certified ones by tenths of the probability, gates by hour. */
  watched(kind, state) {
    const made = node("section", undefined, { "data-kind": kind }), share = (n, of) => (of ? `${Math.round(100 * n / of)} %` : "none");
    const certified = state.calibration.reduce((a, b) => a + b, 0), asked = state.read.reduce((a, b) => a + b, 0);
    const changed = state.alarms.length ? `changed: alarm after conversation ${state.alarms.join(", ")}${state.alarmed > state.alarms.length ? `, the last of ${state.alarmed}` : ""}; its certificate may not hold` : "no alarm";
    made.append(node("h2", `${kind} dial: ${certified ? changed : "nothing to compare with; make the dials again with refusal steer"}`, { class: state.alarms.length ? "warning" : "" }));
    made.append(node("p", `Evidence ${state.evidence.toPrecision(2)}; it alarms at ${state.alarms_at.toLocaleString("en")}. ${state.compared ? `Unlike every certified prompt: ${state.unlike} of ${state.compared}.` : "Prompts are not compared with each certified one: that takes 99 of them, and the transformers engine."} Answers that alarmed: ${state.answers_alarmed}.`));
    const table = node("table"), head = node("tr");
    head.append(node("th", "probability"), node("th", `certified (${certified})`), node("th", `asked (${asked})`));
    table.append(head, ...state.read.map((n, i) => {
      const row = node("tr");
      row.append(node("th", `${(i / 10).toFixed(1)} to ${((i + 1) / 10).toFixed(1)}`, { scope: "row" }));
      for (const [count, of] of [[state.calibration[i], certified], [n, asked]]) {
        const cell = node("td", share(count, of));
        cell.style.backgroundSize = `${of ? 100 * count / of : 0}% 100%`;
        row.append(cell);
      }
      return row;
    }));
    const hours = Object.entries(state.by_hour).map(([at, gates]) => `${new Date(at * 36e5).getHours()}:00 declined ${gates.decline}, permitted ${gates.permit}, left ${gates.leave}`);
    made.append(table, node("p", `By hour: ${hours.join("; ") || "nothing was asked yet"}.`));
    return made;
  }

  // -- what is read

  explain() {
    byId("reads").hidden = !this.dials.length;
    const places = this.readers.map((kind) => {
      const { site, layer, position } = this.card.dials[kind].read;
      return `the ${kind} dial at ${site} of layer ${layer}, position ${position}${POSITIONS[position] ? ` (${POSITIONS[position]})` : ""}`;
    });
    const others = this.dials.filter((kind) => !this.readers.includes(kind));
    const lines = [
      ...(this.readers.length ? [
        `Each dial reads once a prompt, with a linear probe of the residual stream: ${places.join("; ")}. There, and only there (the framed token), the probe is calibrated: the number is the log-odds of the probability that is compared with the threshold (0 is a probability of 0.5, +3 of 0.95, \u22123 of 0.05).`,
        "At every other token, those of the answer included, the number is the same probe at the same layer, on the same scale, read where it was not calibrated. It is a score to compare tokens by, and not a probability.",
        "Readings are taken without interventions. Thresholds change which answer is written, and not what is read at the prompt's tokens.",
      ] : []),
      ...(this.readers.some((kind) => this.card.dials[kind].read.position === "inst_mean") ? ["Where several tokens are framed, the dial reads their mean, and only the mean of their numbers is calibrated."] : []),
      ...others.map((kind) => `The ${kind} dial reads no token: it uses the model's own probability of its opening words.`),
    ];
    byId("reads").replaceChildren(byId("reads").querySelector("summary"), ...lines.map((line) => node("p", line)));
  }
}

const live = new Live();
