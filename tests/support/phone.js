// Shows pages in a frame as wide as a phone and lists what it finds: how wide
// they would like to be, and what is too low for a finger. `#WIDTH:PATH,PATH`.
"use strict";

const [width, paths] = location.hash.slice(1).split(":");
const FINGER = 44;

const measure = (frame) => {
  const page = frame.contentDocument;
  const small = [...page.querySelectorAll("a, button, summary, select, input")].filter((one) => {
    // A device's name stands for its whole card.
    const box = (one.closest(".devices tr") ?? one).getBoundingClientRect();
    return box.height > 1 && box.height < FINGER && !one.matches(".skip");
  });
  const names = small.map((one) => one.textContent || one.name).join("; ") || "none";
  return `${page.documentElement.scrollWidth} of ${frame.clientWidth}, small: ${names}`;
};

addEventListener("load", async () => {
  for (const path of paths.split(",")) {
    const frame = document.createElement("iframe");
    Object.assign(frame.style, { width: `${width}px`, height: "780px", border: "0" });
    frame.src = path;
    const loaded = new Promise((resolve) => (frame.onload = resolve));
    document.body.append(frame);
    await loaded;
    const line = document.createElement("li");
    line.textContent = `${path}: ${measure(frame)}`;
    frame.replaceWith(line);
  }
});
