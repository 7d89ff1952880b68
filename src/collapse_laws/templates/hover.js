(() => {
  const tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true; tip.setAttribute("role", "status");
  document.body.append(tip);
  for (const title of document.querySelectorAll(".drawing g > title")) {
    const mark = title.parentNode, text = title.textContent;
    title.remove();
    mark.classList.add("has-tip");
    const show = (event) => {
      tip.textContent = text; tip.hidden = false;
      tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
    };
    mark.addEventListener("pointerenter", show);
    mark.addEventListener("pointerdown", show);
    mark.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.dataset.was = d.open ? "1" : ""; d.open = true; }));
  addEventListener("afterprint", () => document.querySelectorAll("details").forEach((d) => { d.open = d.dataset.was === "1"; }));
})();
