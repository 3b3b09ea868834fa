// Tooltips, for the pointer and for the keyboard.

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
    document.getElementById("announcement").textContent = of.getAttribute("data-tip");
  }
  return showTip(of.getAttribute("data-tip"), ...at);
}

document.addEventListener("pointerover", (event) => { if (event.target.tagName !== "CANVAS") tipOf(event); });
document.addEventListener("focusin", tipOf);
document.addEventListener("focusout", hideTip);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
