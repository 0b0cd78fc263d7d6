// On a phone every cell tells the heading of its column.
for (const table of document.querySelectorAll("table.sortable")) {
  const names = [...table.tHead.rows[0].cells].map((heading) => heading.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, column) => { cell.dataset.label ??= names[column]; });
  }
}

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

// The ledger shows the claims that fit every group of buttons; links from above choose for the reader.
for (const filters of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.getElementById(filters.dataset.filter).tBodies[0].rows];
  const groups = [...filters.querySelectorAll("[data-field]")];
  const shown = document.getElementById("claims-shown");
  const press = (group, value) => {
    for (const button of group.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.value === value));
    }
  };
  const chosen = (group) => group.querySelector('[aria-pressed="true"]').dataset.value;
  const apply = () => {
    for (const row of rows) {
      row.hidden = groups.some((group) => chosen(group) !== "" && row.dataset[group.dataset.field] !== chosen(group));
    }
    shown.textContent = rows.filter((row) => !row.hidden).length;
  };
  const choose = (values) => {
    groups.forEach((group) => press(group, values[group.dataset.field] ?? ""));
    apply();
  };
  for (const group of groups) {
    for (const button of group.querySelectorAll("button")) {
      button.addEventListener("click", () => { press(group, button.dataset.value); apply(); });
    }
  }
  for (const link of document.querySelectorAll("[data-choose]")) {
    link.addEventListener("click", () => choose({ importance: "main", origin: "paper", verdict: link.dataset.choose }));
  }
  for (const link of document.querySelectorAll("[data-show]")) link.addEventListener("click", () => choose({}));
  apply();
}

// A press on a method hides it in the charts beside its legend.
for (const charts of document.querySelectorAll("[data-charts]")) {
  for (const button of charts.querySelectorAll(".toggle")) {
    const show = (on) => {
      button.setAttribute("aria-pressed", String(on));
      for (const part of charts.querySelectorAll(`.chart [data-method="${button.dataset.method}"]`)) {
        part.classList.toggle("off", !on);
      }
    };
    button.addEventListener("click", () => show(button.getAttribute("aria-pressed") !== "true"));
    show(button.getAttribute("aria-pressed") === "true");
  }
}

// The contents say which section is being read.
if (globalThis.IntersectionObserver) {
  const links = new Map([...document.querySelectorAll(".toc a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      links.get(entry.target.id)?.setAttribute("aria-current", String(entry.isIntersecting));
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) watch.observe(section);
}

// The λ explorer.
const stored = document.getElementById?.("explorer-data");
if (stored) {
  const data = JSON.parse(stored.textContent);
  const at = (id) => document.getElementById(id);
  const [process, state, weight] = ["process", "state", "weight"].map(at);
  const box = { left: 40, right: 350, top: 8, bottom: 198 };
  const scale = (low, high, from, to) => (value) => from + ((to - from) * (value - low)) / (high - low);
  const ticks = (low, high) => {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].reduce((a, b) => (Math.abs(b - rough / power) < Math.abs(a - rough / power) ? b : a));
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9; k++) found.push(Number((k * step).toPrecision(8)));
    return found;
  };
  const place = (value) => value.toFixed(1);
  const axes = (x, y, xs, ys, labels) =>
    xs.map((v) => `<path class="grid" d="M${place(x(v))} ${box.top}V${box.bottom}"/><text class="tick" x="${place(x(v))}" y="${box.bottom + 13}" text-anchor="middle">${v}</text>`).join("") +
    ys.map((v) => `<path class="grid" d="M${box.left} ${place(y(v))}H${box.right}"/><text class="tick" x="${box.left - 4}" y="${place(y(v) + 3.5)}" text-anchor="end">${v}</text>`).join("") +
    `<text class="tick" x="195" y="226" text-anchor="middle">${labels}</text>`;
  const line = (xs, ys, look) => `<path class="${look}" d="M${xs.map((x, i) => `${place(x)} ${place(ys[i])}`).join("L")}"/>`;
  const area = (a, b, ys, look) =>
    `<path class="${look}" d="M${a.map((x, i) => `${place(x)} ${place(ys[i])}`).join("L")}L${b.map((x, i) => `${place(x)} ${place(ys[i])}`).reverse().join("L")}Z"/>`;
  const stairs = (edges, heights, x, y, base) => {
    let path = `M${place(x(edges[0]))} ${place(base)}`;
    heights.forEach((h, i) => { path += `V${place(y(h))}H${place(x(edges[i + 1]))}`; });
    return `${path}V${place(base)}`;
  };
  const current = () => {
    const which = data.processes[process.value];
    const path = at("explorer").elements.path.value;
    const stops = which.paths[path], index = Number(weight.value);
    return { which, path, stops, index, here: which.states[state.value], stop: stops.stops[index][state.value] };
  };
  const along = (id, measured, now) => {
    const { which, stops, index } = current();
    const curves = Object.entries(which.paths).map(([name, p]) => [name, p.weights, p.weights.map((_, i) => measured(p, i))]);
    const tops = curves.flatMap(([, , values]) => values.map((m) => m[2] ?? m[0]));
    const w = scale(-0.03, 1.03, box.left, box.right), d = scale(0, 1.08 * Math.max(...tops), box.bottom, box.top);
    at(id).innerHTML = axes(w, d, [0, 0.25, 0.5, 0.75, 1], ticks(0, 1.08 * Math.max(...tops)), "λ") +
      curves.map(([name, weights, values]) => {
        const look = name === "flow" ? "flow" : "learned";
        const bars = values.map((m, i) => (m[1] === null ? "" : line([w(weights[i]), w(weights[i])], [d(Math.max(m[1], 0)), d(m[2])], look)));
        return line(weights.map(w), values.map((m) => d(m[0])), look) + bars.join("");
      }).join("") + `<circle class="ring" cx="${place(w(stops.weights[index]))}" cy="${place(d(now))}" r="6"/>`;
  };
  const draw = () => {
    const { which, path, stops, index, here, stop } = current();
    const [low, high] = here.range, inside = (v) => Math.min(Math.max(v, low), high);
    const x = scale(low, high, box.left, box.right);
    const unit = scale(0, 1, box.bottom, box.top);
    const levels = which.levels.map(unit);
    at("explorer-charts").classList.toggle("on-flow", path === "flow");
    at("chart-cdf").innerHTML = axes(x, unit, ticks(low, high), [0, 0.25, 0.5, 0.75, 1], "return") +
      line(here.exact.x.map(x), here.exact.p.map(unit), "exact") +
      area(stop.lo.map(inside).map(x), stop.hi.map(inside).map(x), levels, "learned-band") +
      line(stop.q.map(inside).map(x), levels, "learned");
    const top = 1.15 * Math.max(...here.heights, ...stop.h.filter((h) => h < 3 * Math.max(...here.heights)));
    const y = scale(0, top, box.bottom, box.top), cut = (h) => y(Math.min(h, top));
    at("chart-density").innerHTML = axes(x, y, ticks(low, high), ticks(0, top), "return") +
      `<path class="learned-cells" d="${stairs(here.cells.map(inside), stop.h, x, cut, box.bottom)}Z"/>` +
      `<path class="exact-cells" d="${stairs(here.cells.map(inside), here.heights, x, cut, box.bottom)}"/>`;
    const both = [Math.min(low, -2.6), Math.max(high, 2.6)];
    const up = scale(...both, box.bottom, box.top), across = scale(0, 1, box.left, box.right);
    const carried = data.noise.map((_, i) => stop.q[Math.round(((i + 0.5) / data.noise.length) * (stop.q.length - 1))]);
    at("chart-lines").innerHTML = axes(across, up, [0, 0.5, 1], ticks(...both), "flow time t") +
      data.noise.map((z, i) => line([across(0), across(1)], [up(z), up(Math.min(Math.max(carried[i], both[0]), both[1]))], "thread")).join("");
    along("chart-w1", (p, i) => p.stops[i][state.value].w1, stop.w1[0]);
    const loss = stops.losses[index];
    const every = Object.values(which.paths).flatMap((p) => p.losses.flatMap((l) => [...l.lo, ...l.hi]));
    const bounds = [Math.min(...every), Math.max(...every)];
    const z = scale(bounds[0] - 0.03 * (bounds[1] - bounds[0]), bounds[1] + 1e-9, box.bottom, box.top);
    const share = scale(0, 1, box.left, box.right), times = loss.at.map(share);
    at("chart-loss").innerHTML = axes(share, z, [0, 0.25, 0.5, 0.75, 1], ticks(...bounds), "share of training") +
      line([...times, ...[...times].reverse()], [...loss.lo, ...[...loss.hi].reverse()].map(z), "learned-band") +
      line(times, loss.mean.map(z), "learned");
    along("chart-late", (p, i) => [p.losses[i].late, null, null], loss.late);
    at("weight-shown").textContent = stops.weights[index];
    weight.setAttribute("aria-valuetext", `λ = ${stops.weights[index]}`);
    const interval = stop.w1[1] === null ? "" : ` (${stop.w1[1]} to ${stop.w1[2]})`;
    at("readout").textContent = `${which.label}${which.states.length > 1 ? `, s = ${here.state}` : ""}, γ = ${which.discount}: ` +
      `W1 ${stop.w1[0]}${interval}, which is ${(stop.w1[0] / here.std).toFixed(3)} of the law’s deviation; learned deviation ${stop.sd} of the exact one; mean late loss ${loss.late}.`;
  };
  const refit = (keep) => {
    const weights = data.processes[process.value].paths[at("explorer").elements.path.value].weights;
    weight.max = weights.length - 1;
    const nearest = weights.reduce((best, v, i) => (Math.abs(v - keep) < Math.abs(weights[best] - keep) ? i : best), 0);
    weight.value = nearest;
    draw();
  };
  const shown = () => Number(at("weight-shown").textContent);
  const restate = () => {
    const which = data.processes[process.value];
    state.innerHTML = which.states.map((s, i) => `<option value="${i}">s = ${s.state}</option>`).join("");
    state.value = which.first;
    state.hidden = which.states.length === 1;
    refit(shown());
  };
  process.innerHTML = data.processes.map((p, i) => `<option value="${i}">${p.label}</option>`).join("");
  process.value = Math.max(data.processes.findIndex((p) => p.name === "bernoulli"), 0);
  process.addEventListener("change", restate);
  state.addEventListener("change", draw);
  weight.addEventListener("input", draw);
  for (const choice of at("explorer").elements.path) choice.addEventListener("change", () => refit(shown()));
  at("weight-shown").textContent = "1";
  restate();
}
