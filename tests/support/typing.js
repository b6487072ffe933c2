// Types into the filter without asking for it, turns elsewhere, and says what is
// left of it all after the page has refreshed itself.
"use strict";

addEventListener("load", async () => {
  const frame = document.createElement("iframe");
  Object.assign(frame.style, { width: "1000px", height: "500px", border: "0" });
  frame.src = "/";
  const loaded = new Promise((resolve) => (frame.onload = resolve));
  document.body.append(frame);
  await loaded;
  const page = frame.contentDocument;
  const main = () => page.getElementById("main");
  const asOf = main().dataset.asOf;
  page.querySelector("[name=q]").value = "Sens";
  const link = page.querySelectorAll(".devices td a")[9];
  link.focus();
  frame.contentWindow.scrollTo(0, 400);
  while (main().dataset.asOf === asOf) await new Promise((resolve) => setTimeout(resolve, 100));
  const line = document.createElement("li");
  const text = page.querySelector("[name=q]").value;
  const isFocused = page.activeElement.href === link.href && page.activeElement !== link;
  line.textContent = `typed ${text}, focus kept ${isFocused}, scrolled ${frame.contentWindow.scrollY}`;
  frame.replaceWith(line);
});
