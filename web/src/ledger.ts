// What this job holds, from the process down to roles: bars that open. The device around it is context and does not set the scale.

import { LedgerLine, LineKind, Pool, Report, PARTS, ROLES, whenHeld } from "./data";
import { bytes, duration, el, legendItem, percent, section, size, swatch, time } from "./dom";
import { lineName, missing, term } from "./words";

const MOMENTS: Record<LedgerLine["moment"], string> = {
  peak: ", the peak", "traced-peak": ", the peak of the traced steps", "highest-reading": ", the highest reading", "last-reading": ", the last reading",
  "process-peak": ", the peak of the process", end: ", the end", asked: "",
};
const SOURCES: Record<LedgerLine["source"], string> = {
  driver: "driver", calls: "recorded driver calls", host: "kernel", framework: "framework's counters", trace: "trace", replay: "exact replay", derived: "difference of other lines", estimated: "estimate",
};

// A part; `of` is the place of the part that it belongs to.
interface Entry { name: string; part: string; bytes: number | null; source: string; reason: string; of: number | null }

const CLASSES: Partial<Record<LineKind, string>> = {
  free: "free", "cached free": "free", "driver reserved": "reserved", "before the recording": "before", "pool not resident": "free",
  "context at start": "reserved", "the program's own": "reserved", "outside the pools": "others", "other process": "others", unattributed: "others",
  context: "reserved", "code, streams and libraries": "others", code: "others", "first launches": "others", limits: "others", streams: "others", events: "others",
  graphs: "others", "library memory": "others", "program memory": "others", "driver pool": "others", "pinned memory": "others",
  "copies and synchronization": "others", "other driver calls": "others", "page rounding": "slack",
};

const entryOf = (line: LedgerLine, of: number | null): Entry => ({
  name: lineName(line), part: CLASSES[line.line] ?? (PARTS.includes(line.line) ? line.line : "whole"),
  bytes: line.bytes, source: SOURCES[line.source], reason: line.reason, of,
});

// The lines of the job's processes with everything in them; all lines where none is the job's.
function ofJob(lines: LedgerLine[], first: number): Entry[] {
  const places = new Map<number, number>(), out: Entry[] = [];
  lines.forEach((line, at) => {
    const of = line.part_of === null ? null : line.part_of - first;
    if (line.line !== "this job" && (of === null || !places.has(of))) return;
    places.set(at, out.length);
    out.push(entryOf(line, line.line === "this job" || of === null ? null : places.get(of) ?? null));
  });
  return out.length > 0 ? out : lines.map((line) => entryOf(line, line.part_of === null ? null : line.part_of - first));
}

// Where there is no ledger: the pool as its replay or its snapshot knows it. Without either there is nothing around the bytes in use.
function ofPool(pool: Pool): Entry[] {
  const held = pool.at_peak;
  const moment = pool.caching?.moments.find((one) => one.when === (pool.moment === "peak" ? "peak" : "end"));
  const reserved = pool.replay?.exact ? pool.replay.pool_at_peak_bytes : moment?.reserved_bytes ?? null;
  if (!held || reserved === null) return [];
  const source = pool.replay?.exact ? "exact replay" : "snapshot", trace = pool.moment === "peak" ? "trace" : "snapshot";
  const out: Entry[] = [];
  const add = (name: string, part: string, amount: number, source: string, of: number | null) => {
    if (amount > 0 || of === null) out.push({ name, part, bytes: amount, source, reason: "", of });
    return out.length - 1;
  };
  const whole = add("pool " + pool.name, "whole", reserved, source, null);
  const inUse = add("in use", "whole", held.in_use_bytes, trace, whole);
  for (const role of ROLES) add(role, role, held.by_role[role] ?? 0, trace, inUse);
  add("rounding", "slack", held.slack_bytes, trace, inUse);
  add("before the recording", "before", held.before_recording_bytes, trace, inUse);
  add("cached", "free", reserved - held.in_use_bytes, source, whole);
  return out;
}

function bar(all: Entry[], label: string): HTMLElement {
  const box = el("div", { class: "icicle", role: "group", "aria-label": label });
  const legend = el("ul", { class: "legend" });
  const path = el("p", { class: "hint keys", role: "status" });
  const children = (of: number | null) => all.map((_, at) => at).filter((at) => {
    const entry = all[at]!;
    return (entry.bytes ?? 0) > 0 && (entry.of === of || (of === null && entry.of !== null && all[entry.of]?.bytes === null && !above(entry.of)));
  });
  // Whether something above an entry of unknown size is drawn.
  const above = (at: number): boolean => { const of = all[at]?.of ?? null; return of !== null && (all[of]?.bytes !== null || above(of)); };
  // Pieces may be too narrow for their names: the legend has those without parts of their own.
  const leaves = (of: number | null): number[] => children(of).flatMap((at) => (children(at).length > 0 ? leaves(at) : [at]));
  const level = (of: number | null, outer: HTMLElement) => {
    const list = children(of);
    const sum = list.reduce((total, at) => total + (all[at]!.bytes ?? 0), 0);
    const whole = of === null ? sum : Math.max(sum, all[of]!.bytes ?? sum);
    const row = el("div", { class: "level" });
    for (const at of list) {
      const entry = all[at]!, share = ((entry.bytes ?? 0) / whole) * 100;
      const cell = el("div", { class: "cell" });
      cell.style.width = share + "%";
      const button = el("button", { type: "button", class: "piece " + entry.part,
        title: `${entry.name}: ${bytes(entry.bytes ?? 0)}, ${percent(entry.bytes ?? 0, whole)}`,
        "aria-label": `${entry.name}: ${bytes(entry.bytes ?? 0)}` },
        el("span", {}, entry.name), el("span", {}, bytes(entry.bytes ?? 0)));
      button.addEventListener("click", () => show(at));
      cell.append(button);
      if (children(at).length > 0) level(at, cell);
      row.append(cell);
    }
    if (list.length > 0) outer.append(row);
  };
  const show = (root: number | null) => {
    box.replaceChildren();
    if (root !== null && children(root).length === 0) root = all[root]!.of;
    if (root !== null) {
      const entry = all[root]!;
      const back = el("button", { type: "button", class: "piece back " + entry.part, "aria-label": `Back from ${entry.name}` },
        el("span", {}, "← " + entry.name), el("span", {}, bytes(entry.bytes ?? 0)));
      back.addEventListener("click", () => show(entry.of));
      box.append(back);
    }
    level(root, box);
    legend.replaceChildren(...leaves(root).sort((a, b) => all[b]!.bytes! - all[a]!.bytes!).map((at) =>
      legendItem(all[at]!.part, term(all[at]!.name), " ", size(all[at]!.bytes))));
    path.textContent = root === null ? "Click a part to show it over the whole width." : `${all[root]!.name}, ${bytes(all[root]!.bytes ?? 0)}. Click it again to go back.`;
  };
  show(null);
  return el("div", {}, box, legend, path);
}

// The whole device as a thin strip: how much of it the job is, and how much is left.
function context(lines: LedgerLine[]): HTMLElement | null {
  const sum = (...kinds: LineKind[]) => lines.filter((line) => kinds.includes(line.line)).reduce((total, line) => total + (line.bytes ?? 0), 0);
  const total = lines.find((line) => line.line === "device total");
  if (!total) return null;
  const isHost = total.source === "host";
  if (total.bytes === null) {
    return el("p", { class: "hint" }, `${isHost ? "Host memory" : "Memory of the device"}: unknown${total.reason ? `, because ${total.reason}` : ""}.`);
  }
  const parts: [string, string, number][] = [["job", "this job", sum("this job")], ["others", "other processes", sum("other process")],
    ["unknown", isHost ? "everything else" : "not attributed to a process", sum("unattributed")], ["reserved", "reserved by the driver", sum("driver reserved")], ["free", isHost ? "available" : "free", sum("free")]];
  const known = parts.filter(([, , amount]) => amount > 0);
  const strip = el("div", { class: "device", "aria-hidden": "true" });
  for (const [part, , amount] of known) {
    const piece = el("i", { class: part });
    piece.style.width = (100 * amount) / total.bytes + "%";
    strip.append(piece);
  }
  return el("div", { class: "context" }, el("ul", { class: "legend" },
    el("li", {}, isHost ? "Host memory " : "Device ", size(total.bytes), ":"), ...known.map(([part, name, amount]) => legendItem(part, name, " ", size(amount)))), strip);
}

function lines(all: Entry[], caption: string, summary = "Every line, with its source"): HTMLElement {
  const depth = (at: number): number => { const of = all[at]?.of ?? null; return of === null ? 0 : 1 + depth(of); };
  const rows = all.map((entry, at) => {
    const name = el("td", {}, swatch(entry.part), term(entry.name));
    name.style.paddingLeft = 0.5 + depth(at) * 1.1 + "rem";
    return el("tr", {}, name, el("td", { class: "number" }, size(entry.bytes, "unknown")), el("td", { class: "wide" }, entry.bytes === null ? entry.reason : entry.source));
  });
  return el("details", {}, el("summary", {}, summary), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "offscreen" }, caption),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "line"), el("th", { scope: "col", class: "number" }, "bytes"), el("th", { scope: "col" }, "source, or why it is unknown"))),
      el("tbody", {}, ...rows))));
}

// Devices of several hosts have the same names: a ledger begins with the line that is part of no other. Each with the place of its first line.
function ledgers(lines: LedgerLine[]): [number, LedgerLine[]][] {
  const starts = lines.flatMap((line, at) => (line.part_of === null ? [at] : []));
  return starts.map((start, at) => [start, lines.slice(start, starts[at + 1])]);
}

export function ledger(report: Report, pool: Pool): HTMLElement | null {
  const out = section("ledger", "What this job holds");
  const hasHosts = new Set(report.ledger.map((line) => line.host)).size > 1, ends = ledgers(report.ledger_at_end);
  for (const [first, mine] of ledgers(report.ledger)) {
    const head = mine[0]!, device = head.device, isHost = head.source === "host", at = head.at_ns;
    const all = ofJob(mine, first);
    if (!all.some((entry) => (entry.bytes ?? 0) > 0)) continue;
    const title = `${device}${isHost ? " (host memory)" : ""}${hasHosts && head.host ? ` on ${head.host}` : ""} at ${at < 0 ? "-" + duration(-at) : time(at)}${MOMENTS[head.moment]}`;
    const off = head.told_at_ns === null ? 0 : head.told_at_ns - at;
    out.append(el("h3", {}, title));
    const around = context(mine);
    if (around) out.append(around);
    out.append(bar(all, title), lines(mine.map((line) => entryOf(line, line.part_of === null ? null : line.part_of - first)), title));
    if (off !== 0) out.append(el("p", { class: "hint" }, `The ${isHost ? "kernel" : "driver"} was read ${duration(Math.abs(off))} ${off < 0 ? "earlier" : "later"}.`));
    for (const [from, end] of ends.filter(([, end]) => end[0]!.device === device && end[0]!.host === head.host)) out.append(lines(end.map((line) => entryOf(line, line.part_of === null ? null : line.part_of - from)), `${device}, the end of the job`, "Every line at the end of the job"));
  }
  if (out.children.length > 1) return out;
  const all = ofPool(pool), title = `${pool.name} ${whenHeld(pool, "at its peak")}`;
  if (all.length > 0) out.append(el("h3", {}, title), bar(all, title), lines(all, title));
  out.append(missing(pool.moment === "program" ? "A compiled program has no process. Record a run of it with {run} to see the process, its context and the device."
    : all.length > 0 ? "This file does not show the process around the pool. Record a run with {run} to see the context, other processes and the device."
    : "This file shows neither the pool around the bytes in use nor the process. Record a run with {run} to see them."));
  return out;
}
