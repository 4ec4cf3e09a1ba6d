// Comfort only: sorting, filtering, and the line that follows the pointer. The page is whole without it.
"use strict";

for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const names = [...table.querySelectorAll("th")].map((head) => head.textContent);
  for (const row of body.rows) [...row.cells].forEach((cell, column) => (cell.dataset.label = names[column]));
  table.classList.add("labelled");
  table.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => compare(a.cells[column], b.cells[column]));
      body.append(...(rising ? rows : rows.reverse()));
    });
  });
}

function compare(a, b) {
  const [left, right] = [a, b].map((cell) => cell.dataset.value);
  if (left !== undefined && right !== undefined) return Number(left) - Number(right);
  return a.textContent.localeCompare(b.textContent);
}

for (const filter of document.querySelectorAll(".filter")) {
  const rows = [...filter.parentElement.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const [input, output] = [filter.querySelector("input"), filter.querySelector("output")];
  filter.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, index) => (row.hidden = !words.every((word) => texts[index].includes(word))));
    const shown = rows.filter((row) => !row.hidden).length;
    output.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

for (const plot of document.querySelectorAll(".plot[data-curves]")) {
  const curves = plot.dataset.curves.split(";").map((curve) => {
    const [id, tokens] = curve.split(" ");
    return { id, tokens: (tokens || "").split(",").map(Number) };
  });
  const cursor = plot.querySelector(".cursor");
  const readout = plot.parentElement.querySelector(".readout");
  const last = Math.max(...curves.map((curve) => curve.tokens.length)) - 1;
  readout.hidden = false;
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const index = Math.round(share * last);
    const at = last ? `${(index / last) * 100}%` : "0%";
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    cursor.removeAttribute("hidden");
    const sizes = curves
      .filter((curve) => index < curve.tokens.length)
      .map((curve) => `${curve.id} ${curve.tokens[index].toLocaleString("en")}`);
    readout.textContent = [`request ${index + 1}`, ...sizes].join("  ·  ");
  });
  plot.addEventListener("pointerleave", () => {
    cursor.setAttribute("hidden", "");
    readout.textContent = "";
  });
}

// Paper has no buttons: what is folded is opened for it.
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((details) => (details.open = true));
});
