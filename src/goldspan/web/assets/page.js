// Scripts of the page: local times, updates of the list, keyboard shortcuts, and copying.
// Without it every view still works; it only makes them live.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const $ = (selector, within = document) => within.querySelector(selector);
  const say = (text) => { $("#announce").textContent = text; };

  // --- times in the zone of whoever looks ---

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  const tellTimes = (within) => {
    const today = day.format(new Date());
    for (const element of within.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.valueOf())) continue;
      const date = day.format(moment);
      const text = date === today ? clock.format(moment) : `${date}, ${clock.format(moment)}`;
      if (element.textContent !== text) element.textContent = text;
      element.title = whole.format(moment);
    }
  };

  // --- news: that something was scored; the list is then asked for anew, with the filters that are set ---

  let paused = false;
  let waiting = 0;
  let newest = 0; // the place of what is known to be there
  let last = 0;
  let due = null;
  const REST_MS = 1000; // from one refresh to the next, at least
  const AGAIN_MS = 5000; // after one that failed
  const pulse = (state, text) => {
    const element = $("#pulse");
    if (!element) return;
    element.className = `pulse script-only ${state}`;
    $("#pulse-text").textContent = text;
  };
  const refresh = () => {
    due = null;
    const results = $("#results");
    if (!results || paused || document.hidden) return;
    last = Date.now();
    waiting = 0;
    htmx.trigger(results, "arrived");
  };
  const more = (rest = REST_MS) => {
    waiting += 1;
    if (paused) pulse("paused", "paused, new runs are waiting");
    else if (due === null) due = setTimeout(refresh, Math.max(0, last + rest - Date.now()));
  };
  const isBehind = () => Number($("#results")?.dataset.arrived) < newest;
  let source = null;
  let lost = null;
  const hush = () => {
    source?.close();
    source = null;
  };
  const listen = () => {
    const element = $("#pulse");
    if (!element || source || document.hidden) return;
    newest = Number($("#results").dataset.arrived);
    source = new EventSource(`${element.dataset.news}?after=${newest}`);
    source.addEventListener("open", () => {
      clearTimeout(lost);
      lost = null;
      pulse(paused ? "paused" : "", paused ? "paused" : "listening");
      if (isBehind()) more();
    });
    source.addEventListener("arrived", (event) => {
      newest = Number(event.data);
      more();
    });
    source.addEventListener("error", () => { // streams end now and then, and begin anew by themselves
      lost ??= setTimeout(() => pulse("broken", "connection lost, reconnecting"), 4000);
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => { hush(); refresh(); listen(); }, AGAIN_MS); // but not after an answer that is no stream
    });
  };
  const setPaused = (on) => {
    const button = $("#pause");
    if (!button) return;
    paused = on;
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "Resume" : "Pause";
    pulse(on ? "paused" : "", on ? "paused" : "listening");
    say(on ? "Paused: the list does not change." : "The list shows new runs.");
    if (!on && waiting) refresh();
  };
  // Who does not look holds no connection: browsers have few of them for one server, and other windows need them.
  document.addEventListener("visibilitychange", () => { if (document.hidden) hush(); else listen(); });
  window.addEventListener("pagehide", hush);
  window.addEventListener("pageshow", (event) => { if (event.persisted) listen(); });

  // --- what htmx asks for ---

  document.addEventListener("htmx:config:request", (event) => {
    const body = event.detail.ctx.request.body; // what is left empty is no filter, and does not belong into the address
    if (body instanceof FormData) for (const [name, value] of [...body]) if (value === "") body.delete(name);
  });
  document.addEventListener("htmx:before:response", (event) => {
    const { status } = event.detail.ctx.response;
    if (status === 401) location.reload(); // the token is none any more: ask for another
    if (status < 500) return;
    event.preventDefault(); // the list that is there is better than none
    const told = "the list could not be loaded: the store does not answer";
    pulse("broken", told);
    say(told);
    if (isBehind()) more(AGAIN_MS);
  });
  let known = new Set();
  const runs = () => [...document.querySelectorAll(".runs .run")];
  document.addEventListener("htmx:before:swap", () => { known = new Set(runs().map((run) => run.id)); });
  document.addEventListener("htmx:after:swap", (event) => {
    tellTimes(document);
    const fresh = runs().filter((run) => known.size && !known.has(run.id));
    for (const run of fresh) run.classList.add("fresh");
    const total = $("#total");
    if (total && event.detail.ctx.sourceElement.id === "filters") say(`${total.textContent} runs`);
    if (source?.readyState === EventSource.OPEN && !paused) pulse("", "listening");
    if (isBehind()) more(); // a list that took long, or that somebody looked for just then, is of before
    document.dispatchEvent(new CustomEvent("goldspan:shown"));
  });
  $("#filters")?.addEventListener("submit", (event) => { // where htmx is not there, the form is sent as forms are
    if (!window.htmx) for (const input of event.target.elements) if (input.value === "") input.disabled = true;
  });

  // --- copying ---

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = $(button.dataset.copy);
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch { // no clipboard without TLS on another host: mark it, so that one key copies it
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    say(button.textContent);
    setTimeout(() => { button.textContent = label; }, 2000);
  });

  // --- keys ---

  let first = "";
  const PLACES = { l: "/", g: "/goldens", u: "/uncovered" };
  const step = (by) => {
    const names = [...document.querySelectorAll(".runs .run-name")];
    if (!names.length) return;
    const at = names.indexOf(document.activeElement);
    const to = at < 0 ? (by > 0 ? 0 : names.length - 1) : Math.min(Math.max(at + by, 0), names.length - 1);
    names[to].focus();
    names[to].scrollIntoView({ block: "nearest" });
  };
  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    p: () => setPaused(!paused),
    "/": () => $("#f-text")?.focus(),
    "?": () => $("#keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("#keys").open) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (first === "g" && PLACES[event.key]) location.assign(PLACES[event.key]);
    else if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
    first = event.key;
  });
  $("#keys-button")?.addEventListener("click", () => $("#keys").showModal());
  $("#pause")?.addEventListener("click", () => setPaused(!paused));

  $("#zone").textContent = zone || "your zone";
  const origin = $("#origin");
  if (origin) origin.textContent = location.origin;
  tellTimes(document);
  listen();
})();
