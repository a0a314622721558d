// Elements and words. Whatever comes from a file goes in as text, never as markup.

type Child = Node | string | null | undefined | false;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string | number | boolean | null | undefined> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) made.append(child);
  return made;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// Three digits, as the terminal writes them.
export function bytes(value: number): string {
  let size = Math.abs(value), unit = 0;
  while (size >= (unit === 0 ? 1024 : 1023.5) && unit < UNITS.length - 1) { size /= 1024; unit++; }
  const digits = unit === 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return (value < 0 ? "-" : "") + rounded(size, digits) + " " + UNITS[unit];
}

// Halves go to the even digit, as in the terminal: both name one figure alike.
function rounded(value: number, digits: number): string {
  const power = 10 ** digits, scaled = value * power, down = Math.floor(scaled);
  if (scaled - down === 0.5) return ((down % 2 === 0 ? down : down + 1) / power).toFixed(digits);
  return value.toFixed(digits);
}

export function whole(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

// A size for people, with the exact one for machines and in the tip.
export function size(value: number | null | undefined, none = "–"): HTMLElement {
  if (value === null || value === undefined) return el("span", { class: "none" }, none);
  return el("data", { value: String(value), title: whole(value) + " bytes" }, bytes(value));
}

// In seconds; `step` is the smallest difference to show, by default a microsecond.
export function time(ns: number, step = 1000): string {
  return (ns / 1e9).toFixed(Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / 1e9) - 1e-9)))) + " s";
}

export function duration(ns: number): string {
  const [value, unit] = ns < 1e3 ? [ns, "ns"] : ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return (value < 10 && unit !== "ns" ? value.toFixed(2) : value < 100 && unit !== "ns" ? value.toFixed(1) : value.toFixed(0)) + " " + unit;
}

export function percent(part: number, all: number): string {
  return all > 0 ? ((100 * part) / all).toFixed(1) + " %" : "–";
}

// The colours of the style sheet, for what is drawn on canvas; looked up once for each scheme.
const palette = new Map<string, string>();
export function colour(name: string): string {
  let known = palette.get(name);
  if (known === undefined) {
    known = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888";
    palette.set(name, known);
  }
  return known;
}
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => palette.clear());

let family = "";
export function font(): string {
  family = family || getComputedStyle(document.body).fontFamily;
  return "11px " + family;
}

export function swatch(part: string): HTMLElement {
  return el("i", { class: "swatch " + part, "aria-hidden": "true" });
}

// An entry of a legend; of a line it is "stroke" and the line's own class.
export function legendItem(part: string, ...words: Child[]): HTMLElement {
  return el("li", {}, swatch(part), ...words);
}

export function section(id: string, title: string, hint = ""): HTMLElement {
  return el("section", { id, "aria-labelledby": id + "-title" }, el("h2", { id: id + "-title" }, title), hint ? el("p", { class: "hint" }, hint) : null);
}

// A canvas that calls back when its size or the colours change.
export function canvas(label: string, height: number, draw: () => void): HTMLCanvasElement {
  const made = el("canvas", { tabindex: "0", role: "img", "aria-label": label });
  made.style.height = height + "px";
  new ResizeObserver(draw).observe(made);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
  return made;
}

export interface Sheet { g: CanvasRenderingContext2D; scale: number; W: number; H: number }

// The canvas, empty, as large as its box is now and sharp on every screen; drawn on in CSS pixels. A print lays the page out
// anew and no observer of sizes hears of it: so every drawing begins here.
export function sheet(made: HTMLCanvasElement): Sheet | null {
  const g = made.getContext("2d");
  if (!g) return null;
  const scale = window.devicePixelRatio || 1, W = made.clientWidth, H = made.clientHeight;
  const [w, h] = [Math.max(1, Math.round(W * scale)), Math.max(1, Math.round(H * scale))];
  if (made.width !== w || made.height !== h) { made.width = w; made.height = h; }
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, W, H);
  g.font = font();
  return { g, scale, W, H };
}

export function copyButton(text: string, what: string): HTMLElement {
  const button = el("button", { type: "button", class: "copy", "aria-label": "Copy " + what }, "Copy");
  button.addEventListener("click", () => {
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    // From disk the clipboard may be closed to scripts; a selection is not.
    const byHand = () => {
      const area = el("textarea", { "aria-hidden": "true", class: "offscreen" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
      done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand); else byHand();
  });
  return button;
}
