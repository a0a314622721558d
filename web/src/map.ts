// The allocation map: time to the right, addresses upwards, a rectangle for each allocation. What stays empty is free.

import { Blocks, Data, PARTS, Picture } from "./data";
import { GAP, left, ticks } from "./chart";
import { Clock, steer } from "./clock";
import { bytes, canvas, colour, duration, el, legendItem, section, sheet, time, whole as count } from "./dom";
import { missing, partName, plural, term } from "./words";

// Stretches of addresses with little between them; what lies between is left out of the picture.
function stretches(blocks: Blocks): { from: number; to: number; at: number }[] {
  const order = Array.from({ length: blocks.count }, (_, i) => i).sort((a, b) => blocks.address[a]! - blocks.address[b]!);
  const joined: { from: number; to: number }[] = [];
  for (const i of order) {
    const from = blocks.address[i]!, to = from + blocks.chunk[i]!, last = joined[joined.length - 1];
    if (last && from <= last.to) last.to = Math.max(last.to, to); else joined.push({ from, to });
  }
  const covered = joined.reduce((sum, part) => sum + part.to - part.from, 0);
  const out: { from: number; to: number; at: number }[] = [];
  let at = 0;
  for (const part of joined) {
    const last = out[out.length - 1];
    if (last && part.from - last.to <= covered / 2) { at += part.to - last.to; last.to = part.to; continue; }
    if (last) at += covered * 0.02;
    out.push({ ...part, at });
    at += part.to - part.from;
  }
  return out;
}

interface Layer { blocks: Blocks; strings: string[]; place: Float64Array; shown: Uint8Array; byRole: number[][] }

export function map(data: Data, picture: Picture, clock: Clock): HTMLElement | null {
  const base = picture.blocks;
  const out = section("map", "Allocation map");
  if (!base) {
    // Counters know no blocks; the timeline says so already.
    if (picture.by === "counters") return null;
    out.append(missing("No map: the trace has no addresses. Record a trace with {run}."));
    return out;
  }
  const parts = stretches(base);
  const end = parts[parts.length - 1]!;
  const height = end.at + end.to - end.from || 1;
  const layerOf = (blocks: Blocks, strings: string[]): Layer => {
    // The place of each block on the axis without the gaps.
    const place = new Float64Array(blocks.count);
    for (let i = 0; i < blocks.count; i++) {
      const address = blocks.address[i]!;
      let low = 0, high = parts.length;
      while (low + 1 < high) { const middle = (low + high) >> 1; if (parts[middle]!.from <= address) low = middle; else high = middle; }
      place[i] = parts[low]!.at + address - parts[low]!.from;
    }
    const byRole = PARTS.map((_, role) => Array.from({ length: blocks.count }, (_, i) => i).filter((i) => blocks.role[i] === role));
    return { blocks, strings, place, byRole, shown: new Uint8Array(blocks.count).fill(1) };
  };
  const whole = layerOf(base, data.strings);
  let close: Layer | null = null;
  // The blocks of the window where the server sent them, else those of the page.
  const layer = (): Layer => {
    const near = picture.near;
    if (!near?.blocks || near.from > clock.from || near.to < clock.to) return whole;
    if (close?.blocks !== near.blocks) { close = layerOf(near.blocks, near.strings); kept = null; filter(); }
    return close;
  };
  const margin = () => [left(plot.clientWidth), 12] as [number, number];
  const until = (blocks: Blocks, i: number) => (blocks.life[i]! > 0 ? blocks.born[i]! + blocks.life[i]! - 1 : picture.end);

  let cost = 0, kept: { image: HTMLCanvasElement; from: number; to: number } | null = null;
  const area = () => ({ y0: 8, y1: plot.clientHeight - 24 });
  const draw = () => {
    const on = sheet(plot);
    if (!on) return;
    const { g, scale, W, H } = on, [before, after] = margin(), { y0, y1 } = area();
    const [x0, x1] = [before, W - after];
    const span = clock.to - clock.from;
    const X = (t: number) => x0 + ((t - clock.from) / span) * (x1 - x0);
    const Y = (v: number) => y1 - (v / height) * (y1 - y0);
    g.fillStyle = colour("hole");
    for (const part of parts) g.fillRect(x0, Y(part.at + part.to - part.from), x1 - x0, Math.max(1, Y(part.at) - Y(part.at + part.to - part.from)));
    if (clock.isMoving && kept && cost > 6) {
      // While it moves, the last picture is moved; the exact one follows when it rests.
      const share = (kept.to - kept.from) / span, x = X(kept.from);
      g.save();
      g.beginPath();
      g.rect(x0, y0, x1 - x0, y1 - y0);
      g.clip();
      g.drawImage(kept.image, x, y0, (x1 - x0) * share, y1 - y0);
      g.restore();
    } else {
      const began = performance.now();
      const { blocks, place, shown, byRole } = layer();
      g.save();
      g.beginPath();
      g.rect(x0, y0, x1 - x0, y1 - y0);
      g.clip();
      byRole.forEach((list, role) => {
        g.fillStyle = colour(PARTS[role]!);
        for (const i of list) {
          const born = blocks.born[i]!, gone = until(blocks, i);
          if (!shown[i] || gone < clock.from || born > clock.to) continue;
          const x = Math.max(x0, X(born)), w = Math.min(x1, X(gone)) - x;
          const h = (blocks.chunk[i]! / height) * (y1 - y0), y = Y(place[i]!) - h;
          // A thin gap between blocks, where there is room for it.
          g.fillRect(x, y, Math.max(0.6, w - (w > 4 ? 0.6 : 0)), Math.max(0.6, h - (h > 3 ? 0.6 : 0)));
        }
      });
      g.restore();
      cost = performance.now() - began;
      if (cost > 6) {
        const image = document.createElement("canvas");
        image.width = Math.max(1, Math.round((x1 - x0) * scale));
        image.height = Math.max(1, Math.round((y1 - y0) * scale));
        image.getContext("2d")?.drawImage(plot, x0 * scale, y0 * scale, image.width, image.height, 0, 0, image.width, image.height);
        kept = { image, from: clock.from, to: clock.to };
      }
    }
    g.fillStyle = colour("soft");
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (const part of parts.length <= 12 ? parts : []) {
      const h = Y(part.at) - Y(part.at + part.to - part.from);
      if (h > 12) g.fillText(bytes(part.to - part.from), x0 - GAP, (Y(part.at) + Y(part.at + part.to - part.from)) / 2);
    }
    g.textAlign = "center";
    const times = ticks(clock.from / 1e9, clock.to / 1e9, Math.max(2, (x1 - x0) / 110));
    for (const t of times) {
      const x = X(t * 1e9);
      if (x > x0 + 18 && x < x1 - 18) g.fillText(time(t * 1e9, 1e9 * ((times[1] ?? 0) - (times[0] ?? 0) || span / 1e9)), x, H - 10);
    }
    if (clock.chosen >= 0) {
      const x = X(picture.high[clock.chosen]!);
      g.fillStyle = colour("ink");
      if (x >= x0 && x <= x1) g.fillRect(x - 0.5, y0, 1.5, y1 - y0);
    }
  };
  const plot = canvas(
    `Allocation map of ${picture.pool.name}: ${plural(base.count, "allocation")} by address and time. The tables list the same blocks by name.`, 340, draw);
  clock.watch(draw);

  const tip = el("div", { class: "tip", role: "status" });
  tip.hidden = true;
  const found = (x: number, y: number): number => {
    const { blocks, place, shown } = layer();
    const [before, after] = margin(), { y0, y1 } = area();
    const t = clock.from + ((x - before) / (plot.clientWidth - before - after)) * (clock.to - clock.from);
    const v = ((y1 - y) / (y1 - y0)) * height;
    let best = -1;
    for (let i = 0; i < blocks.count; i++) {
      if (shown[i] && place[i]! <= v && v < place[i]! + blocks.chunk[i]! && blocks.born[i]! <= t && t <= until(blocks, i)) best = i;
    }
    return best;
  };
  const tell = (i: number): string[] => {
    const { blocks, strings } = layer();
    const op = strings[blocks.op[i]!] || "no name", shape = strings[blocks.shape[i]!] ?? "";
    const life = blocks.life[i]! > 0 ? `held for ${duration(blocks.life[i]! - 1)}` : "not freed in the trace";
    return [op, [partName(PARTS[blocks.role[i]!] ?? ""), shape].filter(Boolean).join(" · "),
      `${bytes(blocks.chunk[i]! - blocks.slack[i]!)} requested, ${bytes(blocks.chunk[i]!)} allocated`, `from ${time(blocks.born[i]!)}, ${life}`,
      `address ${blocks.base} + ${count(blocks.address[i]!)}`];
  };
  const hide = () => { tip.hidden = true; };
  plot.addEventListener("pointermove", (event) => {
    if (event.buttons) { hide(); return; }
    const i = found(event.offsetX, event.offsetY);
    if (i < 0) { hide(); return; }
    tip.replaceChildren(...tell(i).map((line) => el("span", {}, line)));
    tip.hidden = false;
    const x = Math.min(event.offsetX + 14, Math.max(0, plot.clientWidth - tip.offsetWidth - 4));
    tip.style.left = x + "px";
    tip.style.top = plot.offsetTop + Math.min(event.offsetY + 14, plot.clientHeight - tip.offsetHeight) + "px";
  });
  plot.addEventListener("pointerleave", hide);
  steer(plot, clock, margin, () => undefined);
  plot.addEventListener("keydown", (event) => {
    const keys: Record<string, () => void> = {
      ArrowLeft: () => clock.pan(-0.2), ArrowRight: () => clock.pan(0.2), "+": () => clock.zoom(0.6), "=": () => clock.zoom(0.6),
      "-": () => clock.zoom(1 / 0.6), "0": () => clock.whole(),
    };
    const act = keys[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  });

  // Filters.
  const role = el("select", { "aria-label": "Role" }, el("option", { value: "" }, "all roles"),
    ...PARTS.filter((_, at) => whole.byRole[at]!.length > 0).map((part) => el("option", { value: part }, partName(part))));
  const op = el("input", { type: "search", placeholder: "op or shape contains", "aria-label": "Op or shape contains" });
  const least = el("select", { "aria-label": "Smallest size" },
    ...[0, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28].map((from) => el("option", { value: String(from) }, from ? "from " + bytes(from) : "all sizes")));
  const told = el("span", { class: "hint", role: "status" });
  const filter = () => {
    const words = op.value.toLowerCase(), from = Number(least.value), wanted = role.value ? PARTS.indexOf(role.value) : -1;
    for (const { blocks, strings, shown } of close ? [close, whole] : [whole]) {
      const has = new Map<number, boolean>();
      const matches = (name: number) => {
        let known = has.get(name);
        if (known === undefined) has.set(name, (known = (strings[name] ?? "").toLowerCase().includes(words)));
        return known;
      };
      let found = 0;
      for (let i = 0; i < blocks.count; i++) {
        const is = blocks.chunk[i]! >= from && (wanted < 0 || blocks.role[i] === wanted) &&
          (!words || matches(blocks.op[i]!) || matches(blocks.shape[i]!));
        shown[i] = is ? 1 : 0;
        if (is) found++;
      }
      told.textContent = found === blocks.count ? "" : `${count(found)} of ${count(blocks.count)}`;
    }
    kept = null;
    clock.redraw();
  };
  for (const input of [role, op, least]) input.addEventListener("input", filter);
  out.append(
    el("ul", { class: "legend" }, ...PARTS.filter((_, at) => whole.byRole[at]!.length > 0).map((part) => legendItem(part, term(partName(part)))),
      legendItem("hole", "free"), legendItem("upright ink", "chosen moment")),
    el("div", { class: "tools" }, role, op, least, told), el("div", { class: "stage" }, plot, tip),
    el("p", { class: "hint" }, "Each rectangle is a block: its height is its size, its width is the time it was in use. Addresses go upwards; the time axis is the one above. Many small free gaps between blocks are ", term("fragmentation"), ".",
      parts.length > 1 ? ` The pool has ${plural(parts.length, "address range")}, drawn above each other.` : ""));
  if (base.leftOut > 0) {
    const note = el("p", { class: "note" });
    const say = () => {
      const { blocks } = layer(), isNear = blocks !== base;
      const text = blocks.leftOut === 0 ? "The map shows every allocation of this window." :
        `The map shows the ${count(blocks.count)} largest of ${count(isNear ? blocks.count + blocks.leftOut : blocks.allocations)} allocations${isNear ? " in this window" : ""}, by size times lifetime. ` +
        `The other ${count(blocks.leftOut)} are at most ${bytes(blocks.leftOutMost)} each and short-lived; some gaps that look free may hold them.`;
      if (note.textContent !== text) note.textContent = text;
    };
    say();
    clock.watch(say);
    out.append(note);
  }
  return out;
}
