"use strict";
// Without this script everything is readable; it adds sorting, the choice of the theme and the arrow keys.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("carmine-theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("carmine-theme", theme); } catch { /* private mode */ } };
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const toggle = document.getElementById("theme");
  const show = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.hidden = false; };
  if (stored() === "dark" || stored() === "light") root.dataset.theme = stored();
  toggle.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; keep(root.dataset.theme); show(); });
  show();

  // Arrow keys walk over the marks of a chart; each shows its figures.
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const plot of document.querySelectorAll("svg.plot[tabindex]")) plot.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    const hits = [...plot.querySelectorAll(".hit")];
    const at = hits.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
    hits[next].focus();
    event.preventDefault();
  });

  const value = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const sort = (table, at, down) => {
    const body = table.tBodies[0];
    const missing = (v) => v === "–" || v === "";
    const rows = [...body.rows].map((row) => [value(row, at), row]);
    rows.sort(([a], [b]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      return down ? -order : order;
    });
    body.append(...rows.map(([, row]) => row));
  };
  for (const head of document.querySelectorAll("table.sortable th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(head.closest("table"), head.cellIndex, down);
    });
  }
})();
