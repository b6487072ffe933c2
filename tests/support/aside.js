// Scrolls a wide table aside, waits until the page has refreshed itself, and
// says how far the table stands aside before and after.
"use strict";

addEventListener("load", async () => {
  const frame = document.createElement("iframe");
  Object.assign(frame.style, { width: "800px", height: "500px", border: "0" });
  frame.src = "/history?days=90";
  const loaded = new Promise((resolve) => (frame.onload = resolve));
  document.body.append(frame);
  await loaded;
  const page = frame.contentDocument;
  const main = () => page.getElementById("main");
  const first = main();
  const table = () => page.querySelector(".scroll");
  const atFirst = table().scrollLeft;
  table().scrollLeft = -500;
  while (main() === first) await new Promise((resolve) => setTimeout(resolve, 500));
  const line = document.createElement("li");
  line.textContent = `aside ${atFirst}, then ${table().scrollLeft}`;
  frame.replaceWith(line);
});
