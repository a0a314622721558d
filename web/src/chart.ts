// The scales of charts, and a canvas with one of bytes on its left: what charts of steps, epochs and runs stand on.

import { bytes, canvas, colour, font, sheet } from "./dom";

// Round numbers for an axis; with base 2 they are bytes, of which there are no parts.
export function ticks(from: number, to: number, count: number, base = 10): number[] {
  const rough = (to - from) / Math.max(1, count);
  if (!(rough > 0)) return [];
  let step: number;
  if (base === 2) step = Math.max(1, Math.pow(2, Math.ceil(Math.log2(rough))));
  else {
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    step = [1, 2, 5, 10].map((by) => by * power).find((by) => by >= rough) ?? power * 10;
  }
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to && out.length < 50; at += step) out.push(at);
  return out;
}

// The room for sizes on the left of a plot, between `GAP` and its edge. The same for every chart, so that times stand above each
// other; no size is longer than this one.
export const GAP = 8;
let room = 0;
export function left(width: number): number {
  if (room === 0) {
    const g = document.createElement("canvas").getContext("2d");
    if (g) g.font = font();
    room = Math.ceil(g?.measureText("1023 MiB").width ?? 56) + GAP + 2;
  }
  return Math.max(width < 520 ? 0 : 68, room);
}

export interface Plane {
  g: CanvasRenderingContext2D;
  // The plot is between these; names stand centred below it, on `names`.
  x0: number; x1: number; y0: number; y1: number; names: number;
  y(value: number): number;
}

// `most` is the highest value that is drawn; it stays a little below the top.
export function chart(label: string, height: number, most: number, draw: (plane: Plane) => void): HTMLElement {
  const top = most * 1.06;
  const made = canvas(label, height, () => {
    const on = sheet(made);
    if (!on) return;
    const { g, W, H } = on;
    const [x0, x1, y0, y1] = [left(W), W - 12, 10, H - 24];
    const y = (value: number) => y1 - (value / top) * (y1 - y0);
    g.textBaseline = "middle";
    g.textAlign = "right";
    for (const at of ticks(0, top, 4, 2)) {
      g.fillStyle = colour("line");
      g.fillRect(x0, Math.round(y(at)), x1 - x0, 1);
      g.fillStyle = colour("soft");
      g.fillText(at === 0 ? "0" : bytes(at), x0 - GAP, y(at));
    }
    g.textAlign = "center";
    draw({ g, x0, x1, y0, y1, names: H - 11, y });
  });
  return made;
}
