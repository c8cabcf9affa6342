"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // Variants on and off, in all pictures.
  for (const box of document.querySelectorAll("input[data-toggle]")) {
    box.addEventListener("change", () => {
      for (const part of document.querySelectorAll(`[data-v="${box.dataset.toggle}"]`)) {
        part.classList.toggle("off", !box.checked);
      }
    });
  }

  // One of a figure's drawings.
  for (const choice of document.querySelectorAll("[data-choose]")) {
    choice.addEventListener("change", () => {
      const figure = choice.closest("figure");
      const wanted = choice.tagName === "SELECT" ? choice.value : choice.dataset.choose;
      for (const drawing of figure.querySelectorAll("[data-choice]")) {
        drawing.classList.toggle("other", drawing.dataset.choice !== wanted);
      }
    });
  }

  // What is under the pointer.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const told = event.target instanceof Element && event.target.closest("[data-tip]");
    if (!told) return hide();
    tip.textContent = told.getAttribute("data-tip");
    tip.hidden = false;
    const room = root.clientWidth - tip.offsetWidth - 8;
    const x = Math.max(4, Math.min(event.clientX + 12, room));
    const above = event.clientY - tip.offsetHeight - 10;
    tip.style.left = `${x}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Where a report that grows was being read.
  const place = "meshtax-place";
  try {
    const kept = document.querySelector("meta[http-equiv=refresh]") && sessionStorage.getItem(place);
    if (kept) window.scrollTo(0, Number(kept));
    window.addEventListener("beforeunload", () => sessionStorage.setItem(place, String(window.scrollY)));
  } catch { /* A page from a file may have no storage. */ }
})();
