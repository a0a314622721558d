// The ranks of a job: a map of memory by rank and step, a few ranks as charts of their own, and a table of all of them.

import { GAP, chart, left } from "./chart";
import type { Data, Grid, Rank, Ranks } from "./data";
import { bytes, canvas, colour, el, section, sheet, size, whole } from "./dom";
import { table } from "./table";
import { missing, partName, plural } from "./words";

// Ranks with a chart of their own.
const CHARTS = 6;
const HEIGHT = 380;

// The rank that somebody chose: it outlives the section, where a page that follows a run draws that again.
let kept: number | null = null;

const signed = (value: number) => (value < 0 ? "−" : "+") + bytes(Math.abs(value));

export function ranks(data: Data): HTMLElement | null {
  const told = data.report.ranks;
  if (!told) return null;
  const out = section("ranks", "Ranks");
  const isThere = told.ranks.some((rank) => rank.rank === kept);
  const chosen = { rank: (isThere ? kept : null) ?? told.main ?? told.ranks[0]?.rank ?? 0 };
  const detail = el("div", { id: "rank", role: "status" });
  const few = el("div", { class: "multiples" });
  const choose = (rank: number) => {
    kept = chosen.rank = rank;
    detail.replaceChildren(...details(told, rank));
    if (data.grid) few.replaceChildren(...multiples(told, data.grid, rank));
  };
  if (data.grid) out.append(...heat(told, data.grid, chosen, choose));
  else out.append(missing("No map of steps: no rank announced steps. Mark the steps of your loop with ", el("code", {}, "rec.step(n)"), "."));
  choose(chosen.rank);
  out.append(detail, few, el("details", {}, el("summary", {}, `All ${plural(told.ranks.length, "rank")}`), list(told)), ...clocks(told));
  return out;
}

// From few bytes to many: from a pale colour to a deep one, and in the dark the other way.
function mixed(share: number): string {
  const parts = (name: string) => [1, 3, 5].map((at) => parseInt(colour(name).slice(at, at + 2), 16));
  const [from, to] = [parts("whole"), parts("process")];
  return `rgb(${from.map((part, at) => Math.round(part + (to[at]! - part) * share)).join(",")})`;
}

function heat(told: Ranks, grid: Grid, chosen: { rank: number }, choose: (rank: number) => void): HTMLElement[] {
  let lowest = Infinity, highest = 0;
  for (const row of grid.rows) for (const cell of row) if (cell >= 0) { lowest = Math.min(lowest, cell); highest = Math.max(highest, cell); }
  if (highest === 0 && lowest === Infinity) return [missing("No map of steps: no rank reported memory at its steps. Record the job with {run}.")];
  const columns = grid.steps.length;
  // The order of the rows; the chosen cell is a place in it.
  let order = told.ranks.map((_, at) => at);
  let row = Math.max(0, told.ranks.findIndex((rank) => rank.rank === chosen.rank)), column = 0;
  const shades = Array.from({ length: 64 }, (_, at) => at / 63);
  const area = () => ({ x0: left(plot.clientWidth), x1: plot.clientWidth - 12, y0: 8, y1: plot.clientHeight - 24 });
  const draw = () => {
    const on = sheet(plot);
    if (!on) return;
    const { g, scale } = on, { x0, x1, y0, y1 } = area();
    const wide = Math.max(1, x1 - x0), high = Math.max(1, y1 - y0);
    g.fillStyle = colour("hole");
    g.fillRect(x0, y0, wide, high);
    const palette = shades.map(mixed);
    // Not more cells than pixels: each shows the highest of the ranks and steps that it stands for, so that no peak is lost.
    const [across, down] = [Math.min(columns, Math.floor(wide * scale)), Math.min(order.length, Math.floor(high * scale))];
    for (let y = 0; y < down; y++) {
      const [first, last] = [Math.floor((y * order.length) / down), Math.max(Math.floor(((y + 1) * order.length) / down), Math.floor((y * order.length) / down) + 1)];
      for (let x = 0; x < across; x++) {
        const [begin, end] = [Math.floor((x * columns) / across), Math.max(Math.floor(((x + 1) * columns) / across), Math.floor((x * columns) / across) + 1)];
        let most = -1;
        for (let at = first; at < last; at++) for (let step = begin; step < end; step++) most = Math.max(most, grid.rows[order[at]!]?.[step] ?? -1);
        if (most < 0) continue;
        g.fillStyle = palette[highest === lowest ? 0 : Math.round(((most - lowest) / (highest - lowest)) * 63)]!;
        const [left, top] = [x0 + (x * wide) / across, y0 + (y * high) / down];
        g.fillRect(left, top, wide / across + 0.4, high / down + 0.4);
      }
    }
    g.fillStyle = colour("soft");
    g.textBaseline = "middle";
    g.textAlign = "right";
    const each = Math.max(1, Math.ceil(order.length / (high / 18)));
    for (let at = 0; at < order.length; at += each) g.fillText(`rank ${told.ranks[order[at]!]!.rank}`, x0 - GAP, y0 + ((at + 0.5) * high) / order.length);
    g.textAlign = "center";
    let free = x0;
    for (let at = 0; at < columns; at++) {
      const text = whole(grid.steps[at]!), x = x0 + ((at + 0.5) * wide) / columns, half = g.measureText(text).width / 2;
      if (x - half >= free && x + half <= x1 + 8) { g.fillText(text, x, y1 + 13); free = x + half + 14; }
    }
    g.strokeStyle = colour("ink");
    g.lineWidth = 1.5;
    const [w, h] = [Math.max(4, wide / columns), Math.max(4, high / order.length)];
    g.strokeRect(x0 + ((column + 0.5) * wide) / columns - w / 2, y0 + ((row + 0.5) * high) / order.length - h / 2, w, h);
  };
  const what = grid.figure === "peak" ? "peak" : "in use at the end";
  const plot = canvas(`Memory of ${plural(told.ranks.length, "rank")} by step, from ${bytes(lowest)} to ${bytes(highest)}. The table below lists each rank.`,
    Math.min(HEIGHT, Math.max(120, 32 + order.length * 24)), draw);
  const line = el("p", { class: "hint", id: "cell", role: "status" });
  const say = () => {
    const at = order[row]!, rank = told.ranks[at]!, cell = grid.rows[at]?.[column] ?? -1;
    const step = grid.width > 1 ? `steps ${whole(grid.steps[column]!)} to ${whole(grid.steps[column]! + grid.width - 1)}` : `step ${whole(grid.steps[column]!)}`;
    line.textContent = `Rank ${rank.rank} on ${rank.host}, ${step}: ${cell < 0 ? "unknown" : `${what} ${bytes(cell)}`}`;
    draw();
  };
  const move = (down: number, right: number) => {
    row = Math.min(order.length - 1, Math.max(0, row + down));
    column = Math.min(columns - 1, Math.max(0, column + right));
    say();
  };
  const point = (event: PointerEvent) => {
    const { x0, x1, y0, y1 } = area();
    row = Math.min(order.length - 1, Math.max(0, Math.floor(((event.offsetY - y0) / Math.max(1, y1 - y0)) * order.length)));
    column = Math.min(columns - 1, Math.max(0, Math.floor(((event.offsetX - x0) / Math.max(1, x1 - x0)) * columns)));
    say();
  };
  const number = el("input", { type: "number", id: "rank-number", min: 0, step: 1, value: chosen.rank, "aria-label": "Rank" });
  const pick = () => { const rank = told.ranks[order[row]!]!.rank; number.value = String(rank); choose(rank); };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("click", pick);
  plot.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.round(order.length / 8));
    const keys: Record<string, () => void> = {
      ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1),
      PageUp: () => move(-page, 0), PageDown: () => move(page, 0), Home: () => move(0, -columns), End: () => move(0, columns), Enter: pick, " ": pick,
    };
    const act = keys[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
  });
  number.addEventListener("change", () => {
    const at = told.ranks.findIndex((rank) => rank.rank === Number(number.value));
    if (at < 0) { line.textContent = `There is no rank ${number.value}.`; return; }
    row = order.indexOf(at);
    say();
    choose(told.ranks[at]!.rank);
  });
  const sort = el("select", { id: "rank-order", "aria-label": "Order of ranks" }, el("option", { value: "rank" }, "by rank"), el("option", { value: "peak" }, "by peak"));
  sort.addEventListener("change", () => {
    const current = order[row]!;
    order = told.ranks.map((_, at) => at);
    if (sort.value === "peak") order.sort((a, b) => (told.ranks[b]!.peak_bytes ?? -1) - (told.ranks[a]!.peak_bytes ?? -1) || a - b);
    row = order.indexOf(current);
    say();
  });
  const scale = el("ul", { class: "legend" }, el("li", {}, bytes(lowest)), el("li", { class: "ramp", "aria-hidden": "true" }), el("li", {}, bytes(highest)),
    el("li", {}, el("i", { class: "swatch hole", "aria-hidden": "true" }), "unknown"));
  say();
  return [
    el("div", { class: "bar" }, scale, el("div", { class: "tools" }, el("label", { for: "rank-number" }, "Rank "), number, sort)),
    plot, line,
    el("p", { class: "hint" }, grid.figure === "peak" ? "Each row is a rank, each column a step: its peak." : "Each row is a rank, each column a step: what was in use at its end, because the peaks of most steps are unknown.",
      grid.width > 1 ? ` A column stands for ${whole(grid.width)} steps and shows the highest.` : "", grid.by === "order" ? " Steps are counted in order, because their numbers begin again." : "",
      grid.notMatched > 0 ? ` ${plural(grid.notMatched, "rank counts its", "ranks count their")} steps in another way and ${grid.notMatched === 1 ? "has" : "have"} no row.` : "",
      " Arrow keys move, Enter chooses a rank."),
  ];
}

function details(told: Ranks, number: number): HTMLElement[] {
  const rank = told.ranks.find((one) => one.rank === number);
  if (!rank) return [];
  const group = told.groups.find((one) => one.ranks.includes(number) || one.outliers.includes(number));
  const outlier = told.outliers.find((one) => one.rank === number);
  const facts: [string, Node | string][] = [["host", rank.host], ["peak", size(rank.peak_bytes, "unknown")], ["headroom", size(rank.headroom_bytes, "unknown")], ["how it ended", rank.end]];
  if (group) facts.push(["ranks like it", whole(group.ranks.length)]);
  const made: HTMLElement[] = [el("h3", {}, `Rank ${number}`), el("dl", { class: "figures" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
  if (outlier) {
    made.push(el("p", {}, `It holds ${bytes(Math.abs(outlier.difference_bytes))} ${outlier.difference_bytes < 0 ? "less" : "more"} than rank ${outlier.compared_with}, which is typical of its group.`));
    if (outlier.parts) {
      made.push(table<NonNullable<typeof outlier.parts>[number]>([
        { title: "difference", number: true, value: (part) => part.bytes, show: (part) => el("data", { value: String(part.bytes), title: whole(part.bytes) + " bytes" }, signed(part.bytes)) },
        { title: "what", value: (part) => partName(part.what) },
        { title: "owner", wide: true, value: (part) => part.owner },
      ], outlier.parts, { caption: `What makes the difference between rank ${number} and rank ${outlier.compared_with}`, first: 8 }));
    } else made.push(missing("No trace shows what makes the difference. Record the job with {run}."));
  }
  made.push(el("p", { class: "hint" }, number === told.main ? "The rest of this page is about this rank." : "For a page about this rank: ", number === told.main ? null : el("code", {}, `vramline report PATH --rank ${number} --html FILE`)));
  return made;
}

// The chosen rank, those that the answer names, and of each group the typical one.
function multiples(told: Ranks, grid: Grid, chosen: number): HTMLElement[] {
  const named = [chosen, ...told.outliers.map((one) => one.rank), ...[told.highest, told.lowest].map((one) => one?.rank ?? chosen), ...told.groups.map((group) => group.typical)];
  const shown = [...new Set(named)].slice(0, CHARTS);
  const rows = shown.map((rank) => grid.rows[told.ranks.findIndex((one) => one.rank === rank)] ?? new Float64Array(0));
  // One scale for all, so that heights can be compared.
  const most = Math.max(1, ...rows.flatMap((row) => [...row]));
  return shown.map((rank, at) => {
    const row = rows[at]!, step = row.length;
    const group = told.groups.find((one) => one.typical === rank);
    const note = told.outliers.some((one) => one.rank === rank) ? "differs from its group" : group && group.ranks.length > 1 ? `like ${plural(group.ranks.length - 1, "other rank")}` : "";
    return el("figure", {}, el("figcaption", {}, el("b", {}, `Rank ${rank}`), note ? ` ${note}` : ""), chart(`Memory of rank ${rank} by step.`, 110, most, ({ g, x0, x1, y1, y: Y }) => {
      g.fillStyle = colour("job");
      row.forEach((value, column) => {
        if (value >= 0) g.fillRect(x0 + ((x1 - x0) * column) / step, Y(value), Math.max(0.7, (x1 - x0) / step - 0.5), y1 - Y(value));
      });
    }));
  });
}

function list(told: Ranks): HTMLElement {
  const more = new Map(told.outliers.map((one) => [one.rank, one.difference_bytes]));
  return table<Rank>([
    { title: "rank", number: true, value: (rank) => rank.rank },
    { title: "host", value: (rank) => rank.host },
    { title: "device", value: (rank) => rank.device },
    { title: "peak", number: true, value: (rank) => rank.peak_bytes, show: (rank) => size(rank.peak_bytes) },
    { title: "headroom", number: true, value: (rank) => rank.headroom_bytes, show: (rank) => size(rank.headroom_bytes) },
    { title: "of its group", number: true, value: (rank) => more.get(rank.rank) ?? 0, show: (rank) => (more.has(rank.rank) ? signed(more.get(rank.rank)!) : "alike") },
    { title: "steps", number: true, value: (rank) => rank.steps },
    { title: "how it ended", value: (rank) => rank.end },
  ], told.ranks, { filter: "Filter by host, device or end", caption: "Ranks", first: 50 });
}

function clocks(told: Ranks): HTMLElement[] {
  if (told.hosts.length < 2) return [];
  const time = (ns: number | null) => (ns === null ? "unknown" : Math.abs(ns) < 1e6 ? `${(ns / 1e3).toFixed(0)} µs` : Math.abs(ns) < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(1)} s`);
  return [el("details", {}, el("summary", {}, `Clocks of ${plural(told.hosts.length, "host")}`), table<Ranks["hosts"][number]>([
    { title: "host", value: (host) => host.host },
    { title: "ranks", number: true, value: (host) => host.ranks },
    { title: "aligned by", value: (host) => host.by },
    { title: "shared steps", number: true, value: (host) => host.steps },
    { title: "residual", number: true, value: (host) => host.residual_ns, show: (host) => time(host.residual_ns) },
    { title: "date and time ahead", number: true, value: (host) => host.wall_ahead_ns, show: (host) => time(host.wall_ahead_ns) },
  ], told.hosts, { caption: "Clocks of hosts", first: 50 }))];
}
