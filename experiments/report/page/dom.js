// Elements of the page: making them, opening what is folded for print, and placing the meanings of terms.

function node(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** An element with text from data, in its own writing direction. */
function quoted(name, text, attributes = {}) {
  const made = node(name, undefined, attributes);
  made.append(node("bdi", text));
  return made;
}

/** A probability with three digits; with more where three would make it 0 or 1. */
function digits(value) {
  for (let places = 3; places < 17; places++) {
    const text = value.toFixed(places);
    if (value <= 0 || value >= 1 || (Number(text) > 0 && Number(text) < 1)) return text;
  }
  return String(value);
}

function compare(a, b) { return typeof a === "number" ? a - b : String(a).localeCompare(String(b)); }

function announce(text) { document.getElementById("announcement").textContent = text; }

async function copyText(code, button) {
  try { await navigator.clipboard.writeText(code.textContent); } catch {
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// -- folds: what is closed is printed too, except harmful prompts, which stay as the reader left them

addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details:not([open]):not(.harmful)")) {
    fold.open = true;
    fold.dataset.printed = "";
    if (fold.fill) fold.fill(); // its toggle event comes after the print
  }
});
addEventListener("afterprint", () => {
  for (const fold of document.querySelectorAll("details[data-printed]")) {
    fold.open = false;
    delete fold.dataset.printed;
  }
});

// -- terms: the meaning opens below the term

document.addEventListener("click", (event) => {
  const term = event.target.closest("button.term");
  if (!term) return;
  const meaning = document.getElementById(term.getAttribute("popovertarget")), box = term.getBoundingClientRect();
  meaning.style.left = `${Math.max(8, Math.min(box.left, innerWidth - 340))}px`;
  meaning.style.top = `${box.bottom + 140 > innerHeight ? Math.max(8, box.top - 110) : box.bottom + 6}px`;
});
