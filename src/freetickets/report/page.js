// A click on a column's title sorts its table, each group of rows for itself; every figure can be
// saved. The page reads as well without.
for (const table of document.querySelectorAll("table")) {
  const titles = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  titles.forEach((title, column) => {
    const button = document.createElement("button");
    button.append(...title.childNodes);
    title.append(button);
    button.addEventListener("click", () => {
      const falling = title.getAttribute("aria-sort") === "ascending";
      const order = (a, b) => {
        const [x, y] = [a, b].map((row) => row.cells[column]);
        const known = [x, y].map((cell) => "value" in cell.dataset);
        // What was not measured stays last, whichever way the rest goes.
        if (known[0] !== known[1] && title.classList.contains("number")) {
          return (known[1] - known[0]) * (falling ? -1 : 1);
        }
        return known[0] && known[1]
          ? x.dataset.value - y.dataset.value
          : x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
      };
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter((row) => row.className !== "part");
        body.append(...rows.sort((a, b) => (falling ? order(b, a) : order(a, b))));
      }
      titles.forEach((other) => other.removeAttribute("aria-sort"));
      title.setAttribute("aria-sort", falling ? "descending" : "ascending");
    });
  });
}

// A figure as a file of its own: in the colours that it has now, at its natural size.
function svgFile(figure) {
  const copy = figure.cloneNode(true);
  const colours = getComputedStyle(document.documentElement);
  const resolve = (text) =>
    text.replace(/var\((--[\w-]+)[^()]*\)/g, (_, name) => colours.getPropertyValue(name).trim());
  for (const part of [copy, ...copy.querySelectorAll("*")]) {
    for (const { name, value } of [...part.attributes]) {
      if (value.includes("var(")) part.setAttribute(name, resolve(value));
    }
  }
  const [left, top, width, height] = copy.getAttribute("viewBox").split(/[ ,]+/).map(Number);
  copy.setAttribute("width", `${width}pt`);
  copy.setAttribute("height", `${height}pt`);
  const ground = document.createElementNS(copy.namespaceURI, "rect");
  const shape = { x: left, y: top, width, height, fill: resolve("var(--page)") };
  for (const name in shape) ground.setAttribute(name, shape[name]);
  copy.prepend(ground);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

for (const panel of document.querySelectorAll(".panel")) {
  const button = document.createElement("button");
  button.className = "save";
  button.textContent = "save SVG";
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(svgFile(panel.querySelector("svg")));
    link.download = `${panel.dataset.name}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  panel.append(button);
}
