// Draws the plots of the page in the reader's colour scheme, sorts and searches its tables, and
// tells times in the reader's zone. Everything it shows came with the page; texts go in as texts.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-json").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const scheme = () => (dark.matches ? "dark" : "light");

  // Times --------------------------------------------------------------------------------------

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  // This locale writes times as ISO 8601 does, in whatever zone the reader is.
  const local = new Intl.DateTimeFormat("sv-SE", {
    year: "numeric", month: "2-digit", day: "2-digit",
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const utcText = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  // Numbers on a date axis are shown in the reader's zone; texts without one are shown as they are.
  const axisText = (ms) => new Date(ms).toISOString().slice(0, 23).replace("T", " ");
  const fromAxis = (text) => (typeof text === "number" ? text : Date.parse(`${text.replace(" ", "T")}Z`));
  const localText = (ms) => `${local.format(ms)} ${zone}`;

  const duration = (seconds) => {
    const size = Math.abs(seconds);
    if (size < 120) return `${seconds.toFixed(1)} s`;
    if (size < 7200) return `${(seconds / 60).toFixed(1)} min`;
    if (size < 172800) return `${(seconds / 3600).toFixed(1)} h`;
    return `${(seconds / 86400).toFixed(1)} days`;
  };

  for (const time of document.querySelectorAll("time[datetime]")) {
    time.title = localText(Date.parse(time.dateTime));
  }

  const age = document.getElementById("age");
  const tellAge = () => {
    const seconds = (Date.now() - page.made) / 1000;
    age.textContent = seconds < 60 ? "just now" : `${duration(seconds)} ago`;
    document.getElementById("stale").hidden = seconds < page.staleSeconds;
  };
  tellAge();
  setInterval(tellAge, 15000);

  // Plots --------------------------------------------------------------------------------------

  const hovers = {
    duration: (value) => duration(value),
    rate: (value) => (value >= 1 || value === 0 ? `${value.toFixed(1)} per s` : `${(value * 60).toFixed(1)} per min`),
    count: (value) => value.toLocaleString("en"),
  };
  const labelled = (trace, _place, traces) => {
    const tell = hovers[trace.meta.hover];
    const text = trace.x.map((at, place) => {
      const name = traces.length > 1 ? `${trace.name}: ` : "";
      const first = tell ? `${name}<b>${tell(trace.y[place])}</b>` : trace.text[place];
      return `${first}<br>${utcText(at)} UTC<br>${escaped(localText(at))}`;
    });
    return { ...trace, ms: trace.x, x: trace.x.map(axisText), text, hovertemplate: "%{text}<extra></extra>" };
  };

  const steps = {
    duration: [1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400],
    count: [1, 2, 5],
    rate: [1, 2, 5],
  };
  const stepFor = (kind, top) => {
    const least = top / 5;
    const listed = kind === "duration" ? steps.duration.find((step) => step >= least) : undefined;
    if (listed) return listed;
    const unit = kind === "duration" && least > 86400 ? 86400 : 1;
    const power = 10 ** Math.floor(Math.log10(least / unit));
    const factor = [1, 2, 5, 10].find((item) => item * power * unit >= least * 0.999);
    const step = factor * power * unit;
    return kind === "count" ? Math.max(1, step) : step;
  };
  const tickText = (kind, value) => {
    if (kind !== "duration") return Number(value.toPrecision(6)).toLocaleString("en");
    const plain = (number) => Number(number.toPrecision(4)).toLocaleString("en");
    if (value < 120) return `${plain(value)} s`;
    if (value < 7200) return `${plain(value / 60)} min`;
    if (value < 172800) return `${plain(value / 3600)} h`;
    return `${plain(value / 86400)} d`;
  };

  // The values to be seen between `begin` and `end`, also where a line enters from the side.
  const extent = (traces, begin, end) => {
    let top = 0;
    let bottom = 0;
    const see = (value) => { top = Math.max(top, value); bottom = Math.min(bottom, value); };
    for (const trace of traces) {
      const { ms: x, y } = trace;
      const straight = (trace.line.shape || "linear") === "linear";
      const at = (moment, place) => {
        if (!straight || x[place] === x[place - 1]) return y[place - 1];
        const part = (moment - x[place - 1]) / (x[place] - x[place - 1]);
        return y[place - 1] + part * (y[place] - y[place - 1]);
      };
      for (let place = 0; place < x.length; place += 1) {
        if (x[place] >= begin && x[place] <= end) see(y[place]);
        if (place && x[place - 1] < begin && x[place] > begin) see(at(begin, place));
        if (place && x[place - 1] < end && x[place] > end) see(at(end, place));
      }
    }
    return [bottom, top];
  };
  const valueAxis = (traces, begin, end) => {
    let [bottom, top] = extent(traces, begin, end);
    const kind = traces[0].meta.hover;
    if (top === 0 && bottom === 0) top = kind === "duration" ? 1 : kind === "count" ? 4 : 1;
    const step = stepFor(kind, Math.max(top, -bottom));
    const tickvals = [];
    for (let tick = Math.ceil(bottom / step) * step; tick <= top * 1.08; tick += step) tickvals.push(tick);
    return {
      "yaxis.range": [bottom * 1.08, top * 1.08],
      "yaxis.tickvals": tickvals,
      "yaxis.ticktext": tickvals.map((tick) => tickText(kind, tick)),
    };
  };

  const config = { displayModeBar: false, displaylogo: false, responsive: true, scrollZoom: false };
  const drawn = new Map();
  let span = page.span;

  const bounds = (entry) => {
    const end = page.made;
    const first = Math.min(...entry.plot.figure.data.map((trace) => (trace.x.length ? trace.x[0] : end)));
    const begin = span === null ? page.first : Math.max(page.first, end - span * 1000);
    return [Number.isFinite(begin) ? begin : first, end];
  };

  const draw = (entry) => {
    const { plot, box } = entry;
    const data = entry.data ?? (entry.data = plot.figure.data.map(labelled));
    const layout = structuredClone(plot.figure.layout);
    layout.template = plot.templates[scheme()];
    layout.dragmode = coarse ? false : "zoom";
    layout.autosize = true;
    if (plot.name !== "ddl") {
      const [begin, end] = bounds(entry);
      const [bottom, top] = extent(data, begin, end);
      // A line of zeros is told, and not drawn.
      const flat = bottom === 0 && top === 0;
      box.closest("figure").classList.toggle("flat", flat);
      if (flat) { entry.shown = true; return; }
      layout.xaxis.tickangle = 0;
      layout.xaxis.nticks = box.clientWidth < 480 ? 4 : 0;
      layout.xaxis.range = [begin, end].map(axisText);
      const axis = valueAxis(data, begin, end);
      layout.yaxis = {
        ...layout.yaxis,
        range: axis["yaxis.range"], tickvals: axis["yaxis.tickvals"], ticktext: axis["yaxis.ticktext"],
      };
    }
    const first = !entry.drawn;
    entry.shown = true;
    entry.drawn = true;
    Plotly.react(box, data.map((trace) => ({ ...trace })), layout, config);
    if (first && plot.name !== "ddl") {
      box.on("plotly_relayout", (change) => {
        const range = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (change["xaxis.autorange"]) {
          const [begin, end] = bounds(entry);
          Plotly.relayout(box, { "xaxis.range": [begin, end].map(axisText), ...valueAxis(data, begin, end) });
        } else if (range[0] !== undefined && change["yaxis.range"] === undefined) {
          const [begin, end] = range.map(fromAxis);
          Plotly.relayout(box, valueAxis(data, begin, end));
        }
      });
    }
  };

  const near = new IntersectionObserver((changes) => {
    for (const change of changes) {
      if (!change.isIntersecting) continue;
      near.unobserve(change.target);
      draw(drawn.get(change.target));
    }
  }, { rootMargin: "1200px" });

  for (const block of document.querySelectorAll('script[id^="plots-json-"]')) {
    const feed = block.id.slice("plots-json-".length);
    for (const plot of JSON.parse(block.textContent)) {
      const box = document.getElementById(`plot-${feed}-${plot.name}`);
      if (!box || !plot.figure) continue;
      drawn.set(box, { plot, box });
      near.observe(box);
    }
  }
  const redraw = () => { for (const entry of drawn.values()) if (entry.shown) draw(entry); };
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => { for (const entry of drawn.values()) draw(entry); });

  for (const button of document.querySelectorAll("[data-span]")) {
    const own = button.dataset.span === "all" ? null : Number(button.dataset.span);
    const press = () => button.setAttribute("aria-pressed", String(own === span));
    press();
    button.addEventListener("click", () => {
      span = own;
      for (const other of document.querySelectorAll("[data-span]")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      redraw();
    });
  }

  // Tables -------------------------------------------------------------------------------------

  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (left, right) => {
    if (left === right) return 0;
    if (left === null) return 1;
    if (right === null) return -1;
    return typeof left === "number" && typeof right === "number" ? left - right : collator.compare(left, right);
  };
  const sortedBy = (table, column, first, order) => {
    const header = table.tHead.rows[0].cells[column];
    const next = header.getAttribute("aria-sort") === first ? (first === "ascending" ? "descending" : "ascending") : first;
    for (const cell of table.tHead.rows[0].cells) {
      if (cell.hasAttribute("aria-sort")) cell.setAttribute("aria-sort", "none");
    }
    header.setAttribute("aria-sort", next);
    order(column, next === "ascending" ? 1 : -1);
  };
  const onSort = (table, order) => {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = cell.querySelector("button");
      if (!button) return;
      const first = cell.classList.contains("number") || cell.classList.contains("when") ? "descending" : "ascending";
      button.addEventListener("click", () => sortedBy(table, column, first, order));
    });
  };
  const keyOf = (cell) => {
    const given = cell.dataset.key;
    if (given === undefined) return cell.textContent.trim();
    return given === "" ? null : Number(given);
  };
  // On a phone a row is a list, and each cell tells the heading of its column.
  const tellHeadings = (table) => {
    const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, column) => { cell.dataset.label = headings[column]; });
    }
  };
  for (const table of document.querySelectorAll("table")) tellHeadings(table);
  for (const table of document.querySelectorAll("table.sortable")) {
    onSort(table, (column, sign) => {
      const rows = [...table.tBodies[0].rows];
      rows.sort((left, right) => sign * compare(keyOf(left.cells[column]), keyOf(right.cells[column])));
      table.tBodies[0].append(...rows);
    });
  }

  // All tables of a large changefeed: searched and sorted here, and only a part is in the page.
  const most = 200;
  for (const block of document.querySelectorAll('script[id^="tables-json-"]')) {
    const feed = block.id.slice("tables-json-".length);
    const details = document.getElementById(`all-${feed}`);
    const table = details.querySelector("table");
    const search = details.querySelector("input");
    const told = details.querySelector(".told");
    let rows = null;
    const show = () => {
      const wanted = search.value.trim().toLowerCase();
      const found = wanted ? rows.filter((row) => row.search.includes(wanted)) : rows;
      const body = document.createElement("tbody");
      for (const row of found.slice(0, most)) {
        const line = body.insertRow();
        row.cells.forEach((cell, column) => {
          const box = document.createElement(column ? "td" : "th");
          if (!column) {
            box.scope = "row";
            cell.text.forEach((part, place) => {
              if (place) box.append(".");
              const name = document.createElement("bdi");
              name.textContent = part;
              box.append(name);
            });
          } else if (cell.level) {
            const chip = document.createElement("span");
            chip.className = `chip ${cell.level}`;
            chip.textContent = cell.word;
            box.append(chip, ` ${cell.text}`);
            box.className = "text";
          } else {
            box.textContent = cell.text;
            box.className = table.tHead.rows[0].cells[column].className;
            if (cell.at) box.title = localText(cell.at);
          }
          line.append(box);
        });
      }
      table.tBodies[0].replaceWith(body);
      tellHeadings(table);
      const more = found.length > most ? `; the first ${most} are shown` : "";
      told.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} tables${more}`;
    };
    onSort(table, (column, sign) => {
      rows.sort((left, right) => sign * compare(left.keys[column], right.keys[column]));
      show();
    });
    search.addEventListener("input", () => show());
    details.addEventListener("toggle", () => {
      if (rows || !details.open) return;
      rows = JSON.parse(block.textContent).map(([names, count, changes, last, lag, level, word, state]) => ({
        search: names.join(".").toLowerCase(),
        keys: [names.join("."), count, changes, last, lag, page.levels.indexOf(level)],
        cells: [
          { text: names },
          { text: count === null ? "no mirror" : count.toLocaleString("en") },
          { text: changes.toLocaleString("en") },
          { text: last === null ? "none" : utcText(last), at: last },
          { text: lag === null ? "unknown" : duration(lag) },
          { level, word, text: state },
        ],
      }));
      show();
    });
  }
})();
