// The scatter plot of all prompts on the two write directions, on a canvas, with a description of each prompt.

const HIDDEN = "(harmful: tick “show harmful prompts” to read it)";
const SHAPES = { answer: "circle", answer_with_caveat: "circle", correct_premise: "circle", refuse: "cross", abstain: "triangle" };

class Scatter {
  constructor(run) {
    this.run = run;
    this.canvas = this.run.at(".scatter-plot canvas");
    this.order = this.run.prompts.x.map((_, i) => i).sort((a, b) => this.run.prompts.x[a] - this.run.prompts.x[b]);
    this.stepped = -1;
    const counts = new Map();
    this.run.prompts.id.forEach((_, i) => {
      const kind = `${this.run.labels[this.run.prompts.label[i]]}, ${this.run.action(this.run.prompts.before[i])}`;
      counts.set(kind, (counts.get(kind) || 0) + 1);
    });
    this.run.at(".scatter-plot .legend").append(...[...counts].sort().map(([kind, n]) => {
      const [label, action] = kind.split(", ");
      const mark = node("span", { circle: "●", cross: "✖", triangle: "▲" }[SHAPES[action]] || "◆", { "aria-hidden": "true" });
      mark.style.color = `var(--${label})`;
      const item = node("li");
      item.append(mark, ` ${kind} (n = ${n})`);
      return item;
    }));
    const draw = () => this.draw();
    new ResizeObserver(draw).observe(this.canvas);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
    this.canvas.addEventListener("pointermove", (event) => this.pointAt(event));
    this.canvas.addEventListener("pointerdown", (event) => this.pointAt(event));
    this.canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hideTip(); });
    this.canvas.addEventListener("keydown", (event) => this.step(event));
    draw();
  }

  draw() {
    const box = this.canvas.getBoundingClientRect(), scale = devicePixelRatio || 1, style = getComputedStyle(this.canvas);
    if (!box.width) return;
    this.canvas.width = box.width * scale;
    this.canvas.height = box.height * scale;
    const pen = this.canvas.getContext("2d"), { x, y } = this.run.prompts;
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
    const colours = this.run.labels.map((label) => style.getPropertyValue(`--${label}`));
    pen.globalAlpha = 0.6;
    for (let i = 0; i < x.length; i++) {
      pen.fillStyle = pen.strokeStyle = colours[this.run.prompts.label[i]];
      dot(pen, SHAPES[this.run.action(this.run.prompts.before[i])], ...this.place(i));
    }
  }

  pointAt(event) {
    const box = this.canvas.getBoundingClientRect(), mx = event.clientX - box.left, my = event.clientY - box.top;
    let nearest = -1, least = 144;
    for (let i = 0; i < this.run.prompts.x.length; i++) {
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
    document.getElementById("announcement").textContent = this.aboutPrompt(i);
  }

  aboutPrompt(i) {
    const p = this.run.prompts, hidden = this.run.labels[p.label[i]] === "harmful" && !this.run.at(".unblur").checked;
    const lines = [`\u2068${p.id[i]}\u2069 (${this.run.labels[p.label[i]]}, ${p.part[i]})`,
      hidden ? HIDDEN : p.text[i],
      `without dials: ${this.run.action(p.before[i])}; at these thresholds: ${this.run.action(this.run.actionsNow[i])}`];
    this.run.dials.forEach((kind, d) => lines.push(`${kind}: ${this.run.decision(d, i)}`));
    return lines.join("\n");
  }
}

function dot(pen, shape, x, y) {
  pen.beginPath();
  if (shape === "circle") pen.arc(x, y, 3.2, 0, 7);
  else if (shape === "cross") { pen.moveTo(x - 3, y - 3); pen.lineTo(x + 3, y + 3); pen.moveTo(x + 3, y - 3); pen.lineTo(x - 3, y + 3); }
  else if (shape === "triangle") { pen.moveTo(x, y - 4); pen.lineTo(x + 4, y + 3); pen.lineTo(x - 4, y + 3); pen.closePath(); }
  else { pen.moveTo(x, y - 4); pen.lineTo(x + 4, y); pen.lineTo(x, y + 4); pen.lineTo(x - 4, y); pen.closePath(); }
  if (shape === "cross") { pen.lineWidth = 2; pen.stroke(); } else pen.fill();
}
