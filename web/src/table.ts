// Tables that sort and filter. Sizes sort by their exact bytes.

import { el } from "./dom";

export interface Column<Row> {
  title: string;
  // What is sorted by, and searched in when it is a text.
  value: (row: Row) => number | string | null;
  show?: (row: Row) => Node | string;
  number?: boolean;
  wide?: boolean;
}

const AT_ONCE = 100;
// Rows of a print, which has no button for more.
const PRINTED = 500;

// What somebody made of a table: it outlives the table, where one takes the place of another.
export interface View { words: string; by: string | null; isDown: boolean }
export interface Options { filter?: string; sort?: number; foot?: HTMLElement; caption: string; first?: number; view?: View }

export function table<Row>(columns: Column<Row>[], rows: Row[], options: Options): HTMLElement {
  const view = options.view ?? { words: "", by: null, isDown: true };
  let sorted = columns.findIndex((column) => column.title === view.by), isDown = view.isDown, words = view.words;
  if (sorted < 0) { sorted = options.sort ?? -1; isDown = true; }
  let shown = options.first ?? AT_ONCE;
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more" });
  const count = el("span", { class: "hint", role: "status" });
  const heads = columns.map((column, at) => {
    const button = el("button", { type: "button" }, column.title);
    const head = el("th", { scope: "col", class: column.number ? "number" : "" }, button);
    button.addEventListener("click", () => {
      isDown = sorted === at ? !isDown : column.number === true;
      sorted = at;
      [view.by, view.isDown] = [column.title, isDown];
      draw();
    });
    return head;
  });
  let isPrinting = false;
  const left = el("p", { class: "hint" });
  const draw = () => {
    let found = rows;
    if (words) {
      const needles = words.toLowerCase().split(/\s+/).filter(Boolean);
      const has = (row: Row) => {
        const text = columns.map((column) => column.value(row)).filter((value) => typeof value === "string").join(" ").toLowerCase();
        return needles.every((needle) => text.includes(needle));
      };
      found = rows.filter(has);
    }
    const column = columns[sorted];
    if (column) {
      const sign = isDown ? -1 : 1;
      found = [...found].sort((a, b) => {
        const [x, y] = [column.value(a), column.value(b)];
        if (x === null || y === null) return (x === null ? 1 : 0) - (y === null ? 1 : 0);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
    }
    heads.forEach((head, at) => head.setAttribute("aria-sort", at === sorted ? (isDown ? "descending" : "ascending") : "none"));
    const room = isPrinting ? Math.max(shown, PRINTED) : shown;
    body.replaceChildren(...found.slice(0, room).map((row) => el("tr", {}, ...columns.map((column) => {
      const value = column.show ? column.show(row) : String(column.value(row) ?? "–");
      return el("td", { class: (column.number ? "number" : "") + (column.wide ? " wide" : "") }, value);
    }))));
    more.hidden = found.length <= shown;
    more.textContent = `Show ${Math.min(AT_ONCE * 5, found.length - shown)} more of ${found.length}`;
    count.textContent = words ? `${found.length} of ${rows.length} rows` : "";
    // On paper there is no field that shows the filter.
    left.textContent = !isPrinting ? "" : [
      words ? `Printed: ${found.length} of ${rows.length} rows with “${words}”.` : "",
      found.length > room ? `Not printed: ${found.length - room} more.` : ""].filter(Boolean).join(" ");
    left.hidden = left.textContent === "";
  };
  more.addEventListener("click", () => { shown += AT_ONCE * 5; draw(); });
  const search = el("input", { type: "search", placeholder: options.filter ?? "", "aria-label": options.filter ?? "Filter" });
  search.value = words;
  search.addEventListener("input", () => { words = view.words = search.value; shown = options.first ?? AT_ONCE; draw(); });
  draw();
  const made = el("div", { class: "table" },
    options.filter ? el("div", { class: "tools" }, search, count) : null,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption },
      el("table", {}, el("caption", { class: "offscreen" }, options.caption), el("thead", {}, el("tr", {}, ...heads)), body,
        options.foot ?? null)),
    more, left);
  for (const kind of ["beforeprint", "afterprint"]) made.addEventListener(kind, () => { isPrinting = kind === "beforeprint"; draw(); });
  return made;
}
