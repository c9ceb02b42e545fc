"""The few lines that pages run: values under the pointer, sorting, large pictures, the age of a page. All text goes in as text."""

SCRIPT = """
"use strict";
const tip = document.body.appendChild(Object.assign(document.createElement("div"), {className: "tip"}));
const told = v => Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(4));
const hide = svg => {
  tip.style.visibility = "hidden";
  for (const mark of svg.querySelectorAll(".rule,.at")) mark.style.visibility = "hidden";
};
for (const svg of document.querySelectorAll("svg[data-range]")) {
  const [x0, x1] = JSON.parse(svg.dataset.range), [left, top, right, bottom] = JSON.parse(svg.dataset.frame);
  const lines = [...svg.querySelectorAll("[data-x]")].map(line => ({
    x: JSON.parse(line.dataset.x), y: JSON.parse(line.dataset.y), at: JSON.parse(line.dataset.at),
    name: line.dataset.name, dot: line.querySelector(".at"),
  }));
  svg.addEventListener("pointerleave", () => hide(svg));
  svg.addEventListener("pointermove", event => {
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const wanted = x0 + (p.x - left) / (right - left) * (x1 - x0);
    const nearest = lines.map(line => line.x.reduce((best, x, i) =>
      Math.abs(x - wanted) < Math.abs(line.x[best] - wanted) ? i : best, 0));
    if (!lines.length) return;
    const first = lines.reduce((best, line, i) =>
      Math.abs(line.x[nearest[i]] - wanted) < Math.abs(lines[best].x[nearest[best]] - wanted) ? i : best, 0);
    const x = lines[first].x[nearest[first]], px = left + (x - x0) / (x1 - x0) * (right - left);
    const rule = svg.querySelector(".rule");
    rule.setAttribute("x1", px); rule.setAttribute("x2", px); rule.style.visibility = "visible";
    tip.replaceChildren(told(x) + " " + svg.dataset.axis);
    lines.forEach((line, i) => {
      line.dot.setAttribute("cx", left + (line.x[nearest[i]] - x0) / (x1 - x0) * (right - left));
      line.dot.setAttribute("cy", line.at[nearest[i]]); line.dot.style.visibility = "visible";
      tip.append(document.createElement("br"), (line.name ? line.name + "  " : "") + told(line.y[nearest[i]]));
    });
    const room = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - room.width - 4)) + "px";
    tip.style.top = Math.max(4, event.clientY - room.height - 14) + "px";
    tip.style.visibility = "visible";
  });
}
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const th = button.parentNode, column = th.cellIndex, body = th.closest("table").tBodies[0];
  const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const up = th.getAttribute("aria-sort") === "descending" ? 1 : -1;
  for (const other of th.parentNode.cells) other.removeAttribute("aria-sort");
  th.setAttribute("aria-sort", up > 0 ? "ascending" : "descending");
  const less = (a, b) => isNaN(a) || isNaN(b) || a === "" || b === "" ? a.localeCompare(b) : a - b;
  body.append(...[...body.rows].sort((a, b) => up * less(key(a), key(b))));
});
const large = document.body.appendChild(document.createElement("dialog"));
large.addEventListener("click", () => large.close());
for (const button of document.querySelectorAll(".picture button")) button.addEventListener("click", () => {
  const picture = button.querySelector("img").cloneNode();
  picture.style.width = Math.max(innerWidth, picture.naturalWidth) + "px";
  large.replaceChildren(picture); large.showModal();
});
const links = new Map([...document.querySelectorAll("nav a")].map(a => [a.hash.slice(1), a]));
const mark = () => {
  const there = [...document.querySelectorAll("section[id]")].filter(s => s.getBoundingClientRect().top < innerHeight / 3).pop();
  links.forEach((a, id) => there && id === there.id ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current"));
};
addEventListener("scroll", mark, {passive: true}); mark();
const written = document.querySelector("time[data-running]");
const age = () => {
  const minutes = Math.floor((Date.now() - Date.parse(written.dateTime)) / 60000);
  if (minutes >= 10) written.dataset.running = "no news for " + minutes + " minutes: the run may have been killed";
  written.nextElementSibling.textContent = written.dataset.running;
};
if (written) { age(); setInterval(age, 30000); }
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
"""
