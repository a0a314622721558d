// Who holds which byte, from the whole device down to roles: a bar that splits open.

import { LedgerLine, LineKind, Pool, Report, ROLES, whenHeld } from "./data";
import { bytes, duration, el, percent, section, size, time } from "./dom";
import { PARTS } from "./data";

const MOMENTS: Record<LedgerLine["moment"], string> = {
  peak: ", the peak", "traced-peak": ", the peak of the traced steps", "highest-reading": ", the highest reading", "last-reading": ", the last reading", asked: "",
};

interface Entry { name: string; part: string; bytes: number | null; source: string; reason: string; of: number | null }

const CLASSES: Partial<Record<LineKind, string>> = {
  free: "free", "cached free": "free", "driver reserved": "reserved", "before the recording": "before", "pool not resident": "free",
  "context at start": "reserved", "the program's own": "reserved", "other process": "others", unattributed: "others",
};

function entries(lines: LedgerLine[]): Entry[] {
  return lines.map((line) => ({
    name: line.detail ? `${line.line} ${line.detail}` : line.line,
    part: CLASSES[line.line] ?? (PARTS.includes(line.line) ? line.line : "whole"),
    bytes: line.bytes, source: line.source, reason: line.reason, of: line.part_of,
  }));
}

// Where there is no ledger, the pool at its peak is one.
function ofPool(pool: Pool): Entry[] {
  const held = pool.at_peak;
  if (!held) return [];
  const out: Entry[] = [];
  const add = (name: string, part: string, amount: number, source: string, of: number | null) => {
    if (amount > 0 || of === null) out.push({ name, part, bytes: amount, source, reason: "", of });
    return out.length - 1;
  };
  let of: number | null = null;
  if (pool.replay && pool.replay.exact) {
    of = add("pool " + pool.name, "whole", pool.replay.pool_at_peak_bytes, "replay", null);
  }
  const inUse = add("in use", "whole", held.in_use_bytes, "trace", of);
  if (of !== null && pool.replay) add("cached free", "free", pool.replay.cached_at_peak_bytes, "replay", of);
  for (const role of ROLES) add(role, role, held.by_role[role] ?? 0, "trace", inUse);
  add("slack", "slack", held.slack_bytes, "trace", inUse);
  add("before the recording", "before", held.before_recording_bytes, "trace", inUse);
  return out;
}

function bar(all: Entry[], label: string): HTMLElement {
  const box = el("div", { class: "icicle", role: "group", "aria-label": label });
  const path = el("p", { class: "hint", role: "status" });
  const children = (of: number | null) => all.map((_, at) => at).filter((at) => {
    const entry = all[at]!;
    return (entry.bytes ?? 0) > 0 && (entry.of === of || (of === null && entry.of !== null && all[entry.of]?.bytes === null && !above(entry.of)));
  });
  // Whether something above an entry that is not known is drawn.
  const above = (at: number): boolean => { const of = all[at]?.of ?? null; return of !== null && (all[of]?.bytes !== null || above(of)); };
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
    if (root === null) { level(null, box); path.textContent = "Choose a part to open it over the whole width."; return; }
    const entry = all[root]!;
    const back = el("button", { type: "button", class: "piece back " + entry.part, "aria-label": "Back to the whole" },
      el("span", {}, "← " + entry.name), el("span", {}, bytes(entry.bytes ?? 0)));
    back.addEventListener("click", () => show(entry.of));
    box.append(back);
    level(root, box);
    path.textContent = `${entry.name}, ${bytes(entry.bytes ?? 0)}. Choose it again to go back.`;
  };
  show(null);
  return el("div", {}, box, path);
}

function lines(all: Entry[], caption: string): HTMLElement {
  const depth = (at: number): number => { const of = all[at]?.of ?? null; return of === null ? 0 : 1 + depth(of); };
  const rows = all.map((entry, at) => {
    const name = el("td", {}, el("i", { class: "swatch " + entry.part, "aria-hidden": "true" }), entry.name);
    name.style.paddingLeft = 0.5 + depth(at) * 1.1 + "rem";
    return el("tr", {}, name, el("td", { class: "number" }, size(entry.bytes, "unknown")), el("td", {}, entry.bytes === null ? entry.reason : entry.source));
  });
  return el("details", {}, el("summary", {}, "Every line, with its source"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "offscreen" }, caption),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "line"), el("th", { scope: "col", class: "number" }, "bytes"), el("th", { scope: "col" }, "source, or why it is not known"))),
      el("tbody", {}, ...rows))));
}

export function ledger(report: Report, pool: Pool): HTMLElement | null {
  const devices = [...new Set(report.ledger.map((line) => line.device))];
  const out = section("ledger", "The ledger");
  const one = (title: string, all: Entry[]) => {
    if (!all.some((entry) => (entry.bytes ?? 0) > 0)) return;
    out.append(el("h3", {}, title), bar(all, title), lines(all, title));
  };
  for (const device of devices) {
    const first = report.ledger.findIndex((line) => line.device === device);
    const mine = report.ledger.filter((line) => line.device === device);
    const all = entries(mine.map((line) => ({ ...line, part_of: line.part_of === null ? null : line.part_of - first })));
    const at = mine[0]?.at_ns ?? 0;
    one(`${device}${mine[0]?.source === "host" ? " (host memory)" : ""} at ${at < 0 ? "-" + duration(-at) : time(at)}${MOMENTS[mine[0]!.moment]}`, all);
    const off = mine[0]?.told_at_ns == null ? 0 : mine[0].told_at_ns - at;
    if (off !== 0) out.append(el("p", { class: "hint" }, `The figures of the ${mine[0]!.source === "host" ? "kernel" : "driver"} are from ${duration(Math.abs(off))} ${off < 0 ? "earlier" : "later"}.`));
  }
  if (out.children.length === 1) one(`${pool.name} ${whenHeld(pool, "at its peak")}`, ofPool(pool));
  return out.children.length > 1 ? out : null;
}
