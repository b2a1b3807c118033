"use strict";
const words = new Intl.Collator("en", { numeric: true });

function keyOf(cell, figures) {
  const text = (cell.dataset.sort ?? cell.textContent).trim();
  if (["", "–", "unknown"].includes(text)) return null;
  if (!figures) return text;
  const number = Number(text.replaceAll(",", ""));
  return Number.isNaN(number) ? null : number;
}

function compare(one, other, figures, down) {
  if (one === null || other === null) return (one === null) - (other === null);
  const order = figures ? one - other : words.compare(one, other);
  return down ? -order : order;
}

function sort(table, heads, column) {
  const head = heads[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  const figures = head.classList.contains("figure");
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.querySelector("[scope=rowgroup]"));
    const keyed = rows.map((row) => [keyOf(row.cells[column], figures), row]);
    keyed.sort(([one], [other]) => compare(one, other, figures, down));
    body.append(...keyed.map(([, row]) => row));
  }
}

for (const table of document.querySelectorAll("table.sorted")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, heads, column));
    head.append(button);
  });
}
