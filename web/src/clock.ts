// The window of time that the timeline and the map share: zoom and pan by wheel, drag, touch and keys.

import { Picture } from "./data";

export class Clock {
  from: number;
  to: number;
  chosen = -1;
  private watchers: (() => void)[] = [];
  private isDue = false;
  isMoving = false;
  // Whether somebody chose the moment, or it is the peak by itself.
  isOwnChoice = false;
  private settle = 0;

  constructor(readonly picture: Picture) {
    this.from = picture.begin;
    this.to = picture.end;
  }
  get isWhole() { return this.from <= this.picture.begin && this.to >= this.picture.end; }
  watch(draw: () => void) { this.watchers.push(draw); }
  // Called when the window has come to rest.
  rest: () => void = () => undefined;
  // Draws once a frame, however many events request it.
  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => { this.isDue = false; for (const draw of this.watchers) draw(); });
  }
  set(from: number, to: number) {
    const { begin, end } = this.picture;
    const least = Math.min(end - begin, Math.max(10, (end - begin) / 1e6));
    let length = Math.min(Math.max(to - from, least), end - begin);
    if (!isFinite(length)) length = end - begin;
    from = Math.min(Math.max(from, begin), end - length);
    this.from = from;
    this.to = from + length;
    this.isMoving = true;
    clearTimeout(this.settle);
    this.settle = window.setTimeout(() => { this.isMoving = false; this.redraw(); this.rest(); }, 120);
    this.redraw();
  }
  zoom(factor: number, around = (this.from + this.to) / 2) {
    this.set(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }
  pan(share: number) {
    const by = (this.to - this.from) * share;
    this.set(this.from + by, this.to + by);
  }
  whole() { this.set(this.picture.begin, this.picture.end); }
}

// Ties a canvas to a clock. `left` and `right` are the margins of its plot in CSS pixels.
export function steer(canvas: HTMLCanvasElement, clock: Clock, margins: () => [number, number], click: (x: number, y: number) => void) {
  const timeAt = (x: number) => {
    const [left, right] = margins();
    return clock.from + ((x - left) / Math.max(1, canvas.clientWidth - left - right)) * (clock.to - clock.from);
  };
  canvas.addEventListener("wheel", (event) => {
    // Without a key the page scrolls, as everywhere else; sideways it pans.
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) {
      event.preventDefault();
      clock.zoom(Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 300))), timeAt(event.offsetX));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      clock.pan(event.deltaX / canvas.clientWidth);
    } else if (document.activeElement === canvas) {
      event.preventDefault();
      clock.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), timeAt(event.offsetX));
    }
  }, { passive: false });
  let down: { x: number; from: number; to: number; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    down = { x: event.offsetX, from: clock.from, to: clock.to, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!down) return;
    const by = event.offsetX - down.x;
    if (!down.moved && Math.abs(by) < 4) return;
    down.moved = true;
    const [left, right] = margins();
    const shift = (by / Math.max(1, canvas.clientWidth - left - right)) * (down.to - down.from);
    clock.set(down.from - shift, down.to - shift);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (down && !down.moved) click(event.offsetX, event.offsetY);
    down = null;
  });
  canvas.addEventListener("pointercancel", () => { down = null; });
  canvas.addEventListener("dblclick", (event) => clock.zoom(1 / 3, timeAt(event.offsetX)));
}
