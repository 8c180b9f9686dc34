// Scripts of the page: local times, updates of the list, keyboard shortcuts, and copying.
// Every view also works without a script, but is not updated.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const $ = (selector, within = document) => within.querySelector(selector);
  const announce = (text) => { $("#announce").textContent = text; };

  // --- times in the time zone of the browser ---

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const fullDate = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  const showLocalTimes = (within) => {
    const today = day.format(new Date());
    for (const element of within.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.valueOf())) continue;
      const date = day.format(moment);
      const text = date === today ? clock.format(moment) : `${date}, ${clock.format(moment)}`;
      if (element.textContent !== text) element.textContent = text;
      element.title = fullDate.format(moment);
    }
  };

  // --- updates: when a run is stored, the list is loaded again with the current filters ---

  let paused = false;
  let waiting = 0;
  let newest = 0; // the highest sequence number that the server has announced
  let lastRefresh = 0;
  let refreshTimer = null;
  const REFRESH_MS = 1000; // the minimum time between two refreshes
  const RETRY_MS = 5000; // the wait after a failed refresh
  const showState = (state, text) => {
    const element = $("#pulse");
    if (!element) return;
    element.className = `pulse script-only ${state}`;
    $("#pulse-text").textContent = text;
  };
  const refresh = () => {
    refreshTimer = null;
    const results = $("#results");
    if (!results || paused || document.hidden) return;
    lastRefresh = Date.now();
    waiting = 0;
    htmx.trigger(results, "arrived");
  };
  const scheduleRefresh = (minimumWait = REFRESH_MS) => {
    waiting += 1;
    if (paused) showState("paused", "paused, new runs are waiting");
    else if (refreshTimer === null) refreshTimer = setTimeout(refresh, Math.max(0, lastRefresh + minimumWait - Date.now()));
  };
  const isBehind = () => Number($("#results")?.dataset.arrived) < newest;
  let source = null;
  let lostTimer = null;
  const closeStream = () => {
    source?.close();
    source = null;
  };
  const openStream = () => {
    const element = $("#pulse");
    if (!element || source || document.hidden) return;
    newest = Number($("#results").dataset.arrived);
    source = new EventSource(`${element.dataset.news}?after=${newest}`);
    source.addEventListener("open", () => {
      clearTimeout(lostTimer);
      lostTimer = null;
      showState(paused ? "paused" : "", paused ? "paused" : "listening");
      if (isBehind()) scheduleRefresh();
    });
    source.addEventListener("arrived", (event) => {
      newest = Number(event.data);
      scheduleRefresh();
    });
    source.addEventListener("error", () => { // the server ends streams, and the browser reconnects
      lostTimer ??= setTimeout(() => showState("broken", "connection lost, reconnecting"), 4000);
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => { closeStream(); refresh(); openStream(); }, RETRY_MS); // the browser does not reconnect after an error response
    });
  };
  const setPaused = (on) => {
    const button = $("#pause");
    if (!button) return;
    paused = on;
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "Resume" : "Pause";
    showState(on ? "paused" : "", on ? "paused" : "listening");
    announce(on ? "Paused: the list does not change." : "The list shows new runs.");
    if (!on && waiting) refresh();
  };
  // A hidden page closes its stream: browsers limit the connections to one server, and other windows need them.
  document.addEventListener("visibilitychange", () => { if (document.hidden) closeStream(); else openStream(); });
  window.addEventListener("pagehide", closeStream);
  window.addEventListener("pageshow", (event) => { if (event.persisted) openStream(); });

  // --- requests of htmx ---

  document.addEventListener("htmx:config:request", (event) => {
    const body = event.detail.ctx.request.body; // an empty field is no filter, so the address leaves it out
    if (body instanceof FormData) for (const [name, value] of [...body]) if (value === "") body.delete(name);
  });
  document.addEventListener("htmx:before:response", (event) => {
    const { status } = event.detail.ctx.response;
    if (status === 401) location.reload(); // the token has expired: the server shows the login form
    if (status < 500) return;
    event.preventDefault(); // keep the list that is shown
    const message = "the list could not be loaded: the store does not answer";
    showState("broken", message);
    announce(message);
    if (isBehind()) scheduleRefresh(RETRY_MS);
  });
  let shownIds = new Set();
  const runs = () => [...document.querySelectorAll(".runs .run")];
  document.addEventListener("htmx:before:swap", () => { shownIds = new Set(runs().map((run) => run.id)); });
  document.addEventListener("htmx:after:swap", (event) => {
    showLocalTimes(document);
    const fresh = runs().filter((run) => shownIds.size && !shownIds.has(run.id));
    for (const run of fresh) run.classList.add("fresh");
    const total = $("#total");
    if (total && event.detail.ctx.sourceElement.id === "filters") announce(`${total.textContent} runs`);
    if (source?.readyState === EventSource.OPEN && !paused) showState("", "listening");
    if (isBehind()) scheduleRefresh(); // runs arrived while the list was loaded
    document.dispatchEvent(new CustomEvent("goldspan:shown"));
  });
  $("#filters")?.addEventListener("submit", (event) => { // without htmx, the browser submits the form
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
    } catch { // browsers allow the clipboard only over TLS or on localhost: select the text instead
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    announce(button.textContent);
    setTimeout(() => { button.textContent = label; }, 2000);
  });

  // --- keys ---

  let previousKey = "";
  const ADDRESSES = { l: "/", g: "/goldens", u: "/uncovered" };
  const moveFocus = (by) => {
    const names = [...document.querySelectorAll(".runs .run-name")];
    if (!names.length) return;
    const at = names.indexOf(document.activeElement);
    const to = at < 0 ? (by > 0 ? 0 : names.length - 1) : Math.min(Math.max(at + by, 0), names.length - 1);
    names[to].focus();
    names[to].scrollIntoView({ block: "nearest" });
  };
  const KEYS = {
    j: () => moveFocus(1),
    k: () => moveFocus(-1),
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
    if (previousKey === "g" && ADDRESSES[event.key]) location.assign(ADDRESSES[event.key]);
    else if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
    previousKey = event.key;
  });
  $("#keys-button")?.addEventListener("click", () => $("#keys").showModal());
  $("#pause")?.addEventListener("click", () => setPaused(!paused));

  $("#zone").textContent = zone || "your zone";
  const origin = $("#origin");
  if (origin) origin.textContent = location.origin;
  showLocalTimes(document);
  openStream();
})();
