// The memory of a pool over time, stacked by role, on canvas. A pixel shows what was held at its own highest moment.

import { Data, HeldRow, Moment, MomentSource, PARTS, Picture, Pool, momentAt, momentOf, placeOf, whenHeld } from "./data";
import { GAP, left, ticks } from "./chart";
import { Clock, steer } from "./clock";
import { bytes, canvas, colour, duration, el, legendItem, percent, section, sheet, size, swatch, time, whole } from "./dom";
import { remember } from "./remember";
import { Column, View, table } from "./table";
import { missing, partName, plural, sentence, term } from "./words";

// A colour "#rrggbb" as a pixel of a canvas, lowest byte first.
function paint(colour: string): number {
  const value = parseInt(colour.slice(1), 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

export function peakOf(picture: Picture): number {
  let best = 0;
  for (let i = 1; i < picture.count; i++) if (picture.total[i]! > picture.total[best]!) best = i;
  return best;
}

const isProcess = (name: string) => name.includes("process");

// `chosen` is a moment that was chosen before, when what is shown was less.
export function timeline(data: Data, picture: Picture, clock: Clock, server: MomentSource | null, chosen: number | null): HTMLElement {
  const { pool } = picture;
  const out = section("timeline", "Memory over time");
  let peak = peakOf(picture), total = picture.total;
  // A peak between two readings of the counters is not among them.
  const isPeak = picture.total[peak]! >= (pool.peak_bytes ?? (picture.by === "counters" ? Infinity : 0));
  const highest = isPeak ? "peak" : "highest reading";
  const used = PARTS.map((_, at) => picture.parts[at]!.some((value) => value > 0));
  const steps = data.report.steps.filter((step) => step.pool === pool.name && step.pid === pool.pid);
  const marks = data.report.marks.filter((mark) => mark.label && mark.pid === pool.pid && (mark.device === "" || mark.device === pool.device));
  const limit = pool.limit_by === "built-in" ? null : pool.limit_bytes;
  // A line far above what is held would press that flat: it is named, not drawn.
  const most = picture.lines.map((line) => line.value.reduce((a, b) => Math.max(a, b), 0));
  const isNear = most.map((value) => value <= 2.5 * picture.total[peak]!);
  const top = Math.max(...most.filter((_, at) => isNear[at]), picture.total[peak]!, 1);
  const isLimitNear = limit !== null && limit <= top * 3;
  const height = (isLimitNear ? Math.max(top, limit) : top) * 1.08;
  const margin = () => [left(plot.clientWidth), 12] as [number, number];

  const pixelwise = document.createElement("canvas");
  let image: ImageData | null = null, words = new Uint32Array(0);
  const draw = () => {
    const on = sheet(plot);
    if (!on) return;
    const { g, scale, W, H } = on;
    if (total !== picture.total) { peak = peakOf(picture); total = picture.total; }
    const near = picture.near && picture.near.from <= clock.from && picture.near.to >= clock.to ? picture.near : null;
    const [before, after] = margin();
    const [x0, x1, y0, y1] = [before, W - after, 22, H - 26];
    const span = clock.to - clock.from;
    const X = (t: number) => x0 + ((t - clock.from) / span) * (x1 - x0);
    const Y = (v: number) => y1 - (v / height) * (y1 - y0);
    const text = colour("soft"), line = colour("line");

    g.textBaseline = "middle";
    g.textAlign = "right";
    for (const at of ticks(0, height, 5, 2)) {
      g.fillStyle = line;
      g.fillRect(x0, Math.round(Y(at)), x1 - x0, 1);
      g.fillStyle = text;
      g.fillText(at === 0 ? "0" : bytes(at), x0 - GAP, Y(at));
    }
    // Which column each pixel shows: the highest that reaches into it.
    const pixels = Math.max(1, Math.round((x1 - x0) * scale)), tall = Math.max(1, Math.round((y1 - y0) * scale));
    const shown = new Int32Array(pixels).fill(-1);
    let at = Math.max(0, placeOf(picture.time, clock.from));
    for (let p = 0; p < pixels; p++) {
      const until = clock.from + (span * (p + 1)) / pixels;
      const begin = clock.from + (span * p) / pixels;
      if (picture.time[at]! > until || begin > picture.end) continue;
      let best = at;
      while (at + 1 < picture.count && picture.time[at + 1]! < until) {
        at++;
        // At its beginning a pixel shows what went on from before; one event later it is another amount.
        if (picture.total[at]! >= picture.total[best]!) best = at;
      }
      shown[p] = best;
    }
    g.save();
    g.beginPath();
    g.rect(x0, y0 - 20, x1 - x0, y1 - y0 + 20);
    g.clip();
    // Pixel by pixel: outlines of thousands of corners would take a browser without a GPU longer than a frame.
    if (!image || image.width !== pixels || image.height !== tall) {
      image = new ImageData(pixels, tall);
      words = new Uint32Array(image.data.buffer);
      pixelwise.width = pixels;
      pixelwise.height = tall;
    }
    words.fill(0);
    const paints = PARTS.map((part) => paint(colour(picture.by === "counters" ? "activations" : part)));
    for (let p = 0; p < pixels; p++) {
      const i = shown[p]!;
      if (i < 0) continue;
      let sum = 0, bottom = tall;
      for (let part = 0; part < PARTS.length; part++) {
        sum += picture.parts[part]![i]!;
        const top = tall - Math.round((sum / height) * tall), word = paints[part]!;
        for (let y = Math.max(0, top), at = y * pixels + p; y < bottom; y++, at += pixels) words[at] = word;
        bottom = Math.min(bottom, top);
      }
    }
    pixelwise.getContext("2d")?.putImageData(image, 0, 0);
    g.drawImage(pixelwise, x0, y0, x1 - x0, y1 - y0);
    // Where steps begin, while they are apart.
    const inside = steps.filter((step) => step.begin_ns >= clock.from && step.begin_ns <= clock.to);
    if (inside.length > 0 && inside.length < (x1 - x0) / 5) {
      g.textAlign = "left";
      let free = -1;
      for (const step of inside) {
        const x = X(step.begin_ns);
        g.fillStyle = colour("mark");
        g.fillRect(x, y0 - 4, 1, y1 - y0 + 4);
        const name = String(step.step);
        const wide = g.measureText(name).width;
        if (x > free && x + 3 + wide <= x1) {
          g.fillStyle = text;
          g.fillText(name, x + 3, y0 - 8);
          free = x + wide + 10;
        }
      }
    }
    g.setLineDash([2, 3]);
    // Where names of marks stand: one that would lie over another, or beyond the plot, is left out. The notes have them all.
    const named: number[] = [];
    for (const mark of marks) {
      if (mark.time_ns < clock.from || mark.time_ns > clock.to) continue;
      const x = X(mark.time_ns);
      g.strokeStyle = colour("soft");
      g.beginPath();
      g.moveTo(x, y0);
      g.lineTo(x, y1);
      g.stroke();
      const beside = x - 12 < x0 ? x + 7 : x - 6;
      if (beside + 6 > x1 || named.some((other) => Math.abs(other - beside) < 12)) continue;
      named.push(beside);
      g.save();
      g.translate(beside, y0 + 2);
      g.rotate(-Math.PI / 2);
      g.textAlign = "right";
      g.fillStyle = text;
      g.fillText(mark.label.slice(0, 28), 0, 0);
      g.restore();
    }
    g.setLineDash([]);
    picture.lines.forEach((all, number) => {
      if (!isNear[number]) return;
      const series = near?.lines.find((line) => line.name === all.name && line.time.length > 0) ?? all;
      g.strokeStyle = colour(isProcess(all.name) ? "process" : "driver");
      g.lineWidth = 1.5;
      g.beginPath();
      let i = Math.max(0, placeOf(series.time, clock.from)), y = Y(series.value[i] ?? 0);
      g.moveTo(Math.max(x0, X(series.time[i] ?? 0)), y);
      for (i++; i < series.time.length; i++) {
        const x = X(series.time[i]!);
        if (x > x1 + 5) break;
        g.lineTo(x, y);
        y = Y(series.value[i]!);
        g.lineTo(x, y);
      }
      g.lineTo(Math.min(x1, X(picture.end)), y);
      g.stroke();
      g.lineWidth = 1;
    });
    if (limit !== null && isLimitNear) {
      g.strokeStyle = colour("limit");
      g.setLineDash([6, 4]);
      g.beginPath();
      g.moveTo(x0, Y(limit));
      g.lineTo(x1, Y(limit));
      g.stroke();
      g.setLineDash([]);
      g.fillStyle = colour("limit");
      g.textAlign = "right";
      g.fillText("limit " + bytes(limit), x1 - 4, Y(limit) - 8);
    }
    // The chosen moment, then the peak above all.
    if (clock.chosen >= 0) {
      const x = X(picture.high[clock.chosen]!);
      g.fillStyle = colour("ink");
      g.fillRect(x - 0.5, y0 - 4, 1.5, y1 - y0 + 4);
    }
    const px = X(picture.high[peak]!), py = Y(picture.total[peak]!);
    if (px >= x0 - 1 && px <= x1 + 1) {
      g.fillStyle = colour("ink");
      g.beginPath();
      g.arc(px, py, 3.5, 0, 7);
      g.fill();
      const label = highest + " " + bytes(picture.total[peak]!);
      const wide = g.measureText(label).width;
      g.textAlign = px + wide + 14 > x1 ? "right" : "left";
      const place = [px + (g.textAlign === "right" ? -9 : 9), Math.max(y0 - 8, py - 7)] as const;
      // Whatever it stands on, it can be read.
      g.strokeStyle = colour("paper");
      g.lineJoin = "round";
      g.lineWidth = 3;
      g.strokeText(label, ...place);
      g.lineWidth = 1;
      g.fillText(label, ...place);
    }
    g.restore();
    g.textAlign = "center";
    g.fillStyle = text;
    const times = ticks(clock.from / 1e9, clock.to / 1e9, Math.max(2, (x1 - x0) / 110));
    for (const t of times) {
      const x = X(t * 1e9);
      if (x > x0 + 18 && x < x1 - 18) g.fillText(time(t * 1e9, 1e9 * ((times[1] ?? 0) - (times[0] ?? 0) || span / 1e9)), x, H - 12);
    }
  };

  const plot = canvas("", 300, draw);
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-roledescription", "chart");
  plot.setAttribute("aria-label",
    `Memory of ${pool.name} over time, ${highest} ${bytes(picture.total[peak]!)} at ${time(picture.high[peak]!)}. ` +
    "Left and right choose a moment, with Shift they pan; plus and minus zoom, 0 shows all, P goes to the " + highest + ".");
  clock.watch(draw);

  const held = el("div", { class: "held", "aria-live": "polite" });
  const view: View = { words: "", by: null, isDown: true };
  const show = (at: number) => {
    clock.chosen = at;
    held.replaceChildren(heldAt(data, picture, at, view));
    clock.redraw();
    // The server knows every moment.
    if (!server || picture.moments.length === 0 || keptAt(data, picture, at)) return;
    const [when, amount] = [picture.high[at]!, picture.total[at]!];
    void server.held(picture.place, when, amount).then((told) => {
      if (!told || picture.high[clock.chosen] !== when || picture.total[clock.chosen] !== amount) return;
      picture.moments.push(momentOf(told.moment, told.roles, told.strings));
      if (picture.moments.length > 300) picture.moments.splice(100, 100);
      // Somebody may be typing in the filter by now.
      const restore = remember(held);
      held.replaceChildren(heldAt(data, picture, clock.chosen, view));
      restore();
    });
  };
  const choose = (at: number) => {
    clock.isOwnChoice = true;
    show(at);
  };
  const nearest = (x: number): number => {
    const [before, after] = margin();
    const per = (clock.to - clock.from) / Math.max(1, plot.clientWidth - before - after);
    const t = clock.from + (x - before) * per;
    if (Math.abs(picture.high[peak]! - t) < per * 6) return peak;
    // The highest within two pixels: one aims at what one sees.
    let best = Math.max(0, placeOf(picture.time, t - 2 * per));
    for (let i = best + 1; i < picture.count && picture.time[i]! <= t + 2 * per; i++) {
      if (picture.total[i]! > picture.total[best]!) best = i;
    }
    return best;
  };
  steer(plot, clock, margin, (x) => choose(nearest(x)));
  plot.addEventListener("keydown", (event) => {
    const hop = Math.max(1, Math.round((placeOf(picture.time, clock.to) - placeOf(picture.time, clock.from)) / 100));
    const go = (by: number) => {
      if (event.shiftKey) { clock.pan(by * 0.2); return; }
      const at = Math.min(picture.count - 1, Math.max(0, (clock.chosen < 0 ? peak : clock.chosen) + by * hop));
      choose(at);
      if (picture.high[at]! < clock.from || picture.high[at]! > clock.to) clock.pan(by * 0.5);
    };
    const centre = clock.chosen >= 0 ? picture.high[clock.chosen]! : undefined;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => go(-1), ArrowRight: () => go(1), "+": () => clock.zoom(0.6, centre), "=": () => clock.zoom(0.6, centre),
      "-": () => clock.zoom(1 / 0.6, centre), "0": () => clock.whole(), Home: () => clock.whole(),
      p: () => choose(peak), P: () => choose(peak),
    };
    const act = keys[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  });

  const button = (label: string, sign: string, act: () => void) => {
    const made = el("button", { type: "button", "aria-label": label, title: label }, sign);
    made.addEventListener("click", act);
    return made;
  };
  const legend = el("ul", { class: "legend" });
  const counters = picture.by === "counters";
  if (counters) legend.append(legendItem("activations", term("in use"), " (", term("counter readings"), ")"));
  else PARTS.forEach((part, at) => { if (used[at]) legend.append(legendItem(part, term(partName(part)))); });
  picture.lines.forEach((series, at) => legend.append(legendItem("stroke " + (isProcess(series.name) ? "process" : "driver"),
    series.name + (isNear[at] ? "" : `: up to ${bytes(most[at]!)}, above the chart`))));
  if (limit !== null && isLimitNear) legend.append(legendItem("stroke limit", "limit"));
  if (steps.length > 0) legend.append(legendItem("upright step", "a step begins"));
  if (marks.length > 0) legend.append(legendItem("upright mark", "mark"));
  legend.append(legendItem("upright ink", "chosen moment"), legendItem("dot", highest));
  const isBetween = !isPeak && pool.peak_bytes !== null;
  out.append(
    el("div", { class: "bar" }, legend, el("div", { class: "buttons" },
      button("Zoom in", "+", () => clock.zoom(0.5, clock.chosen >= 0 ? picture.high[clock.chosen]! : undefined)),
      button("Zoom out", "−", () => clock.zoom(2)),
      button("Show all", "All", () => clock.whole()), button("Go to the " + highest, isPeak ? "Peak" : "Highest", () => choose(peak)))),
    plot,
    el("p", { class: "hint keys" }, `Click a moment to see its blocks. Drag to pan; Ctrl and the wheel zoom. Keys: ← → choose a moment, with Shift they pan, + − zoom, 0 shows all, P goes to the ${highest}.`),
    ...[isBetween ? `The peak, ${bytes(pool.peak_bytes!)}, lies between two readings` : "",
      limit !== null && !isLimitNear ? `The limit, ${bytes(limit)}, is above the chart` : "", ...picture.notes]
      .filter(Boolean).map((note) => el("p", { class: "hint" }, sentence(note))),
    held);
  clock.isOwnChoice = chosen !== null;
  show(chosen === null ? peak : columnAt(picture, chosen));
  return out;
}

// The column whose highest moment is this one, or is near to it.
export function columnAt(picture: Picture, time: number): number {
  let at = Math.max(0, placeOf(picture.time, time));
  while (at > 0 && picture.high[at] !== time && picture.time[at - 1] === picture.time[at]) at--;
  return at;
}

// The blocks in use at a column, where the page knows them.
function keptAt(data: Data, picture: Picture, at: number): Moment | null {
  const when = picture.high[at]!, total = picture.total[at]!;
  return picture.moments.find((moment) => moment.time === when && moment.inUse === total) ?? alive(data, picture, at);
}

// What lives at a position, from the allocations themselves.
function alive(data: Data, picture: Picture, at: number): Moment | null {
  const { blocks } = picture;
  if (!blocks || !blocks.isWhole || picture.each !== 1) return null;
  const rows = new Map<string, HeldRow>();
  let known = 0, slack = 0;
  const before = picture.parts[PARTS.indexOf("before")]![at]!;
  for (let i = 0; i < blocks.count; i++) {
    const freed = blocks.freedAt[i]!;
    if (blocks.bornAt[i]! > at || (freed >= 0 && freed <= at)) continue;
    const op = data.strings[blocks.op[i]!] ?? "", shape = data.strings[blocks.shape[i]!] ?? "", role = PARTS[blocks.role[i]!] ?? "unknown";
    const asked = blocks.chunk[i]! - blocks.slack[i]!;
    known += blocks.chunk[i]!;
    slack += blocks.slack[i]!;
    const key = [op, shape, role, op ? "" : asked].join("\n");
    const age = picture.high[at]! - blocks.born[i]!;
    const row = rows.get(key);
    if (row) { row.bytes += asked; row.count++; row.age_ns = Math.max(row.age_ns ?? 0, age); }
    else rows.set(key, { bytes: asked, count: 1, op, layer: "", role, shape, dtype: "", source: "", variable: "", evidence: "", age_ns: age });
  }
  const lost = picture.total[at]! - known - before;
  // Frees are missing: what the events say is more than there was.
  if (lost < 0) return null;
  const list = [...rows.values()];
  if (lost > 0) {
    list.push({ bytes: lost, count: 1, op: "", layer: "", role: "unknown", shape: "", dtype: "", source: "in the allocator's count, but in no event", variable: "", evidence: "", age_ns: null });
  }
  list.sort((a, b) => b.bytes - a.bytes);
  return { time: picture.high[at]!, inUse: picture.total[at]!, slack, before, rows: list, restRows: 0, restBytes: 0 };
}

function heldAt(data: Data, picture: Picture, at: number, view: View): HTMLElement {
  const when = picture.high[at]!, total = picture.total[at]!;
  const heading = (moment: number, amount: number) => el("h3", {}, `In use at ${time(moment)}: `, size(amount));
  if (picture.moments.length === 0) {
    return el("div", {}, heading(when, total), missing("No trace: the total is known, the blocks are not. Record a trace with {run}."));
  }
  let moment = keptAt(data, picture, at), note: HTMLElement | null = null;
  if (!moment) {
    const since = (moment: Moment) => (moment.time ?? 0) - when;
    moment = picture.moments.reduce((a, b) => (Math.abs(since(b)) < Math.abs(since(a)) ? b : a));
    note = el("p", { class: "note" },
      `This file has only the sums by role of the chosen moment, ${time(when)} with ${bytes(total)}. ` +
      `The table shows the nearest moment that it has in full, ${duration(Math.abs(since(moment)))} ${since(moment) < 0 ? "earlier" : "later"}. `,
      el("code", {}, "vramline serve"), " shows every moment.");
  }
  return el("div", {}, heading(moment.time ?? when, moment.inUse), note, heldTable(moment, "Blocks in use at the chosen moment", view));
}

// Where there is no chart to choose a moment on: the blocks of a profile, a program or a dump.
export function heldAtPeak(pool: Pool): HTMLElement | null {
  if (!pool.at_peak) return null;
  const moment = momentAt(pool.at_peak);
  const isProgram = pool.moment === "program";
  const out = section("held", isProgram ? "Buffers of the compiled program" : `Blocks in use ${whenHeld(pool, "at the peak")}`);
  out.append(el("p", {}, size(moment.inUse), ` in ${pool.name}`, moment.time === null ? "" : ` at ${time(moment.time)}`),
    heldTable(moment, isProgram ? "Buffers of the compiled program" : `Blocks in use ${whenHeld(pool, "at the peak")}`),
    missing(isProgram ? "No timeline: a compiled program has no times. Record a run of it with {run}."
      : "No timeline: this file shows one moment. Record the whole run with {run}."));
  return out;
}

function heldTable(moment: Moment, caption: string, view?: View): HTMLElement {
  const inUse = moment.inUse;
  const extra: [string, string, number][] = [];
  if (moment.restBytes > 0) extra.push(["", plural(moment.restRows, "smaller row"), moment.restBytes]);
  if (moment.slack > 0) extra.push(["slack", "rounding: allocated beyond the requests", moment.slack]);
  if (moment.before > 0) extra.push(["before", "before the recording: allocated before it started", moment.before]);
  // Without a history nothing has an age.
  const hasAge = moment.rows.some((row) => row.age_ns !== null);
  const empty = () => el("td", { class: "number", colspan: hasAge ? "2" : "1" });
  const foot = el("tfoot", {}, ...extra.map(([part, text, amount]) => el("tr", { class: "extra" },
    el("td", { class: "number" }, size(amount)), el("td", { class: "number" }, percent(amount, inUse)), empty(),
    el("td", { colspan: "3" }, part ? swatch(part) : null, text))),
    el("tr", { class: "total" }, el("td", { class: "number" }, size(inUse)), el("td", { class: "number" }, "100 %"), empty(), el("td", { colspan: "3" }, "in use")));
  const age: Column<HeldRow> = { title: "age", number: true, value: (row) => row.age_ns, show: (row) => (row.age_ns === null ? "–" : duration(row.age_ns)) };
  return table<HeldRow>([
    { title: "bytes", number: true, value: (row) => row.bytes, show: (row) => size(row.bytes) },
    { title: "share", number: true, value: (row) => row.bytes, show: (row) => percent(row.bytes, inUse) },
    { title: "blocks", number: true, value: (row) => row.count, show: (row) => whole(row.count) },
    ...(hasAge ? [age] : []),
    { title: "role", value: (row) => row.role, show: (row) => el("span", { title: row.evidence || null }, swatch(row.role), row.role) },
    { title: "what", wide: true, value: (row) => [row.variable, row.op, row.source, row.layer].join(" "), show: (row) => {
      const name = row.variable || row.op || row.source;
      return el("span", { title: [row.op, row.source, row.evidence].filter(Boolean).join("\n") || null }, name || el("span", { class: "none" }, "no name"));
    } },
    { title: "shape", value: (row) => [row.shape, row.dtype].filter(Boolean).join(" ") },
  ], moment.rows, { filter: "Filter by name, role or shape", sort: 0, foot, first: 12, caption, view });
}
