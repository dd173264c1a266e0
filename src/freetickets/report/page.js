// A click on a column's title sorts its table; the page reads as well without.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const titles = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  titles.forEach((title, column) => {
    const button = document.createElement("button");
    button.append(...title.childNodes);
    title.append(button);
    button.addEventListener("click", () => {
      const falling = title.getAttribute("aria-sort") === "ascending";
      const order = (a, b) => {
        const [x, y] = [a, b].map((row) => row.cells[column]);
        return "value" in x.dataset && "value" in y.dataset
          ? x.dataset.value - y.dataset.value
          : x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
      };
      const rows = [...body.rows].sort((a, b) => (falling ? order(b, a) : order(a, b)));
      titles.forEach((other) => other.removeAttribute("aria-sort"));
      title.setAttribute("aria-sort", falling ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
