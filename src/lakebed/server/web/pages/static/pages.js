// Everything works without this file, except the colour switch and updates without a reload.
"use strict";

(() => {
  const root = document.documentElement;
  const EVERY_MS = 5000;

  // -- Colours: as the system, light, dark. Runs before the body is shown, so that nothing flashes.

  const themes = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
  const stored = () => { try { return localStorage.getItem("theme") || ""; } catch { return ""; } };
  const wear = (theme) => { if (theme) { root.dataset.theme = theme; } else { delete root.dataset.theme; } };
  wear(stored());

  const themeSwitch = () => {
    const button = document.querySelector("[data-theme-switch]");
    if (!button) { return; }
    const show = () => {
      const [sign, name] = themes[stored()] || themes[""];
      button.textContent = sign;
      button.setAttribute("aria-label", `Colours: ${name}`);
      button.title = `Colours: ${name}`;
    };
    button.hidden = false;
    show();
    button.addEventListener("click", () => {
      const names = Object.keys(themes);
      const next = names[(names.indexOf(stored()) + 1) % names.length];
      try { localStorage.setItem("theme", next); } catch { /* kept for this page alone */ }
      wear(next);
      show();
    });
  };

  // -- Live regions: the page is fetched again, and elements with data-live are replaced by those of the same id.

  let shown = 0;

  const replace = async (url, only) => {
    const turn = ++shown;
    const answer = await fetch(url, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (!answer.ok) { notice(WHY[answer.status] || `The service answers with status ${answer.status}`); return; }
    notice();
    if (turn !== shown) { return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("[data-live]")) {
      const now = fresh.getElementById(old.id);
      if (!now || (only && old.id !== only) || old.isEqualNode(now)) { continue; }
      if (!only && (old.contains(document.activeElement) || selected(old))) { continue; }
      const [left] = [...old.querySelectorAll(".grid")].map((grid) => grid.scrollLeft);
      old.replaceWith(document.adoptNode(now));
      const grid = now.querySelector(".grid");
      if (grid && left) { grid.scrollLeft = left; }
    }
  };

  const selected = (element) => {
    const selection = getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(element, true);
  };

  // -- A page that is not brought up to date says so, and since when.

  // Status 0 is a redirect, which is one to the page for signing in.
  const WHY = { 0: "Your session is over: reload the page to sign in", 404: "What this page shows is gone" };

  const notice = (why) => {
    const now = document.getElementById("stale");
    if (!why) { if (now) { now.remove(); } return; }
    if (now && now.dataset.why === why) { return; }
    const made = now || document.createElement("p");
    made.id = "stale";
    made.className = "notice bad";
    made.setAttribute("role", "status");
    made.dataset.why = why;
    made.textContent = `${why}. What is shown is of ${new Date().toLocaleTimeString()} at the latest.`;
    if (!now) { document.getElementById("content").prepend(made); }
  };

  const live = () => {
    if (!document.querySelector("[data-live]")) { return; }
    const tick = async () => {
      if (!document.hidden) { try { await replace(location.href); } catch { notice("The service does not answer"); } }
      setTimeout(tick, EVERY_MS);
    };
    setTimeout(tick, EVERY_MS);
  };

  // -- The filter box answers while one types; without this file it takes the Enter key.

  const filters = () => {
    for (const form of document.querySelectorAll("form[data-filter]")) {
      let waiting = 0;
      const apply = async () => {
        const url = `${location.pathname}?${new URLSearchParams(new FormData(form))}`;
        history.replaceState(null, "", url);
        try { await replace(url, form.dataset.filter); } catch { form.submit(); }
      };
      form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 150); });
      form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); apply(); });
    }
  };

  // -- Keys: an element with data-key takes the focus.

  const keys = () => document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) { return; }
    const wanted = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (wanted) { event.preventDefault(); wanted.focus(); }
  });

  // -- The picture of a key space: one stop of the Tab key, arrow keys within, and a line about what is pointed at.

  const icicles = () => {
    for (const figure of document.querySelectorAll("[data-icicle]")) {
      const cells = [...figure.querySelectorAll("svg a")];
      const about = figure.querySelector("[data-about]");
      const tell = (event) => {
        const cell = event.target.closest("a");
        about.textContent = cell ? cell.getAttribute("aria-label") : "\u00a0";
      };
      cells.forEach((cell, place) => cell.setAttribute("tabindex", place ? "-1" : "0"));
      figure.addEventListener("mouseover", tell);
      figure.addEventListener("focusin", tell);
      figure.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, Home: -cells.length, End: cells.length }[event.key];
        const at = cells.indexOf(document.activeElement);
        if (!step || at < 0) { return; }
        event.preventDefault();
        const next = cells[Math.min(cells.length - 1, Math.max(0, at + step))];
        cells[at].setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      });
    }
  };

  // -- Ctrl-Enter in a statement runs it.

  const submits = () => {
    for (const area of document.querySelectorAll("textarea[data-submit]")) {
      area.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          area.form.requestSubmit(area.form.querySelector("button[name=run]"));
        }
      });
    }
  };

  document.addEventListener("DOMContentLoaded", () => { themeSwitch(); live(); filters(); keys(); icicles(); submits(); });
})();
