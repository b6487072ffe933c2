// Keeps a page current: fetches it again every few seconds while it is seen and
// swaps its <main>. Pages work without this.
"use strict";

(() => {
  const main = () => document.getElementById("main");
  const stale = document.getElementById("stale");
  const every = () => Math.max(2, Number(main().dataset.every) || 0) * 1000;
  let freshAt = performance.now();
  let isAsking = false;

  // What was typed or chosen and not yet asked for.
  const isChanged = (field) =>
    field.options
      ? field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected))
      : field.type === "search" && field.value !== field.defaultValue;

  // The filter, while somebody types or chooses there: it must stay as it is.
  const heldForm = () => {
    const form = main().querySelector("form.filter");
    if (!form) return null;
    const isHeld =
      form.contains(document.activeElement) || [...form.elements].some(isChanged);
    return isHeld ? form : null;
  };

  // What can be focused, by what it is: it is another element after each swap.
  const FOCUSABLE = "a, button, summary";
  const nameOf = (one) => one.getAttribute("href") ?? one.tagName + one.textContent;

  // Text being selected would be lost.
  const isSelecting = () => !(document.getSelection()?.isCollapsed ?? true);

  // What scrolls by itself, within the page.
  const scrollables = () => [...main().querySelectorAll(".scroll")];

  const markAge = () => {
    stale.querySelector("span").textContent = main().dataset.asOf;
    stale.hidden = performance.now() - freshAt <= 2 * every();
  };

  const replaceAround = (form, fresh) => {
    const twin = fresh.querySelector("form.filter");
    if (!twin) return;
    const nodes = [...fresh.childNodes].map((node) => document.adoptNode(node));
    const at = nodes.indexOf(twin);
    [...main().childNodes].filter((node) => node !== form).forEach((node) => node.remove());
    form.before(...nodes.slice(0, at));
    form.after(...nodes.slice(at + 1));
    main().dataset.asOf = fresh.dataset.asOf;
  };

  const swap = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const fresh = next.getElementById("main");
    if (!fresh?.dataset.asOf) throw new Error("no page");
    const open = [...main().querySelectorAll("details")].map((one) => one.open);
    const focused = main().contains(document.activeElement) ? document.activeElement : null;
    const [x, y] = [scrollX, scrollY];
    const asides = scrollables().map((one) => one.scrollLeft);
    const form = heldForm();
    if (form) replaceAround(form, fresh);
    else main().replaceWith(document.adoptNode(fresh));
    // Losing the focused element lays the page out while it is short.
    scrollTo(x, y);
    scrollables().forEach((one, n) => {
      if (asides[n] !== undefined) one.scrollLeft = asides[n];
    });
    main().querySelectorAll("details").forEach((one, n) => {
      if (open[n] !== undefined) one.open = open[n];
    });
    if (focused && !focused.isConnected) {
      const others = [...main().querySelectorAll(FOCUSABLE)];
      const same = others.find((one) => nameOf(one) === nameOf(focused));
      same?.focus({ preventScroll: true });
    }
    document.title = next.title;
  };

  // Between press and release a swap would take the link from under the finger.
  let isPressed = false;
  addEventListener("pointerdown", () => (isPressed = true));
  for (const end of ["pointerup", "pointercancel", "blur"]) {
    addEventListener(end, () => (isPressed = false));
  }
  const isBusy = () => isPressed || isSelecting();

  const refresh = async () => {
    if (isAsking || document.hidden || isBusy()) return;
    isAsking = true;
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), every());
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: limit.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text();
      if (isBusy()) return;
      swap(text);
      freshAt = performance.now();
    } catch {
      // Said by the banner once the page is older than two rounds.
    } finally {
      clearTimeout(timer);
      isAsking = false;
      markAge();
    }
  };

  // What came of a probe just asked for is said once, not after each refresh.
  const here = new URL(location.href);
  if (here.searchParams.has("asked")) {
    here.searchParams.delete("asked");
    history.replaceState(null, "", here);
  }

  // The error page has nothing to refresh.
  if (main().dataset.every === "0") return;
  const turn = async () => {
    await refresh();
    markAge();
    setTimeout(turn, every());
  };
  setTimeout(turn, every());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refresh();
  });
})();
