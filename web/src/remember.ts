// What somebody did to a page: what was opened, typed and focused. Taken before it is drawn again, and put back.

type Field = HTMLInputElement | HTMLSelectElement;

// An element by its kind and its place in its section: that stays, whatever comes or goes elsewhere.
function key(element: Element): string {
  const home = element.closest("section");
  const peers = home ? [...home.querySelectorAll(element.tagName)] : [];
  return [home?.id ?? "", element.tagName, element.getAttribute("aria-label") ?? peers.indexOf(element)].join(" ");
}

export function remember(page: HTMLElement | null): () => void {
  if (!page) return () => undefined;
  const opened = new Set([...page.querySelectorAll("details[open]")].map(key));
  const typed = new Map([...page.querySelectorAll<Field>("input, select:not(#pool)")].map((field) => [key(field), field.value]));
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
