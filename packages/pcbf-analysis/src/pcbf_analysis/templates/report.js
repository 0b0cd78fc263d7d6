// A press on a heading sorts its table by that column; missing values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.addEventListener("click", () => {
      const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.key;
      const compare = (a, b) =>
        (key(a) === "") - (key(b) === "") ||
        sign * (isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(a) - key(b));
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    });
  });
}

// A press on a verdict shows the claims that have it; so does a tile of the summary.
for (const group of document.querySelectorAll("[data-filter]")) {
  const rows = document.getElementById(group.dataset.filter).tBodies[0].rows;
  const buttons = [...group.querySelectorAll("button")];
  const choose = (verdict) => {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict)));
    for (const row of rows) row.hidden = verdict !== "" && row.dataset.verdict !== verdict;
  };
  buttons.forEach((button) => button.addEventListener("click", () => choose(button.dataset.verdict)));
  for (const tile of document.querySelectorAll("[data-choose]")) {
    tile.addEventListener("click", () => choose(tile.dataset.choose));
  }
}
