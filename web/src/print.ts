// What a print needs and a screen does not: everything open, and the rows of tables. Put back afterwards.

let opened: HTMLDetailsElement[] | null = null;

// Tables hear it as an event of their own: those that are gone need not be known here.
function tell(kind: "beforeprint" | "afterprint") {
  for (const one of document.querySelectorAll(".table")) one.dispatchEvent(new Event(kind));
}

function begin() {
  if (opened) return;
  opened = [...document.querySelectorAll<HTMLDetailsElement>("details:not([open])")];
  for (const one of opened) one.open = true;
  tell("beforeprint");
}

function end() {
  for (const one of opened ?? []) one.open = false;
  opened = null;
  tell("afterprint");
}

// Not every browser announces a print in both ways.
export function printable() {
  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
  matchMedia("print").addEventListener("change", (event) => { if (event.matches) begin(); else end(); });
}
