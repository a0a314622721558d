// What somebody did to a page: what was opened, typed, sorted by and focused. Taken before it is drawn again, and put back.

type Field = HTMLInputElement | HTMLSelectElement;

// An element by its kind and its place in its section, which does not change when other sections do.
function key(element: Element): string {
  const home = element.closest("section");
  const peers = home ? [...home.querySelectorAll(element.tagName)] : [];
  return [home?.id ?? "", element.tagName, element.getAttribute("aria-label") ?? peers.indexOf(element)].join(" ");
}

export function remember(page: HTMLElement | null): () => void {
  if (!page) return () => undefined;
  const opened = new Set([...page.querySelectorAll("details[open]")].map(key));
  const typed = new Map([...page.querySelectorAll<Field>("input, select:not(#pool)")].map((field) => [key(field), field.value]));
  const sorted = new Map([...page.querySelectorAll("th[aria-sort]:not([aria-sort=none])")].map((head) => [key(head), head.getAttribute("aria-sort")]));
  const active = document.activeElement;
  const focused = active && page.contains(active) ? key(active) : null;
  const cursor = active instanceof HTMLInputElement ? active.selectionStart : null;
  const [left, top] = [scrollX, scrollY];
  return () => {
    for (const one of page.querySelectorAll("details")) if (opened.has(key(one))) one.open = true;
    for (const field of page.querySelectorAll<Field>("input, select:not(#pool)")) {
      const value = typed.get(key(field));
      if (value === undefined || value === field.value) continue;
      field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    for (const head of page.querySelectorAll("th[aria-sort]")) {
      const order = sorted.get(key(head));
      // The first press sorts by it, a second one the other way round.
      for (let press = 0; order && press < 2 && head.getAttribute("aria-sort") !== order; press++) head.querySelector("button")?.click();
    }
    if (focused) {
      for (const one of page.querySelectorAll<HTMLElement>("input, select, button, canvas, summary, [tabindex]")) {
        if (key(one) !== focused) continue;
        one.focus({ preventScroll: true });
        if (one instanceof HTMLInputElement && cursor !== null) one.setSelectionRange(cursor, cursor);
        break;
      }
    }
    scrollTo(left, top);
  };
}
