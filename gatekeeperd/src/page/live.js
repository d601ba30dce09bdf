// The live view of one session. In a session that refreshes a login it takes mouse and keyboard.

import { api, attempt, h, path, source, toast, words } from "/dom.js";

export function live(session) {
  const id = session.session_id;
  const refresh = session.kind === "refresh";
  const image = h("img", { src: source(path("v1", "sessions", id, "view")), alt: "What the browser shows now", draggable: false });
  image.addEventListener("error", () => image.remove());
  const view = h("div", { class: refresh ? "view input" : "view", tabIndex: refresh ? 0 : -1, role: refresh ? "application" : "img", "aria-label": "Live view" },
    image, h("span", { class: "badge good live" }, "live"));
  const url = h("input", { type: "text", placeholder: "https://…", "aria-label": "Address", spellcheck: false, autocomplete: "off" });
  const go = h("button", { type: "submit", class: "plain" }, "Go");
  const snap = h("button", { type: "button", class: "plain", title: "Take a screenshot", onclick: (event) =>
    attempt(async () => {
      await api("POST", path("v1", "sessions", id, "screenshot"), {});
      toast(session.record === "off" ? "This session keeps no pictures." : "The picture is in the recording.");
    }, event.target) }, "Screenshot");
  const address = h("form", { class: "address", onsubmit: (event) => {
    event.preventDefault();
    let wanted = url.value.trim();
    if (wanted && !/^[a-z]+:/i.test(wanted)) wanted = `https://${wanted}`;
    attempt(async () => {
      const done = await api("POST", path("v1", "sessions", id, "navigate"), { url: wanted });
      url.value = done.final_url;
      login?.suggest(done.final_url);
      for (const notice of done.notices || []) toast(notice.text);
    }, go);
  } }, url, go, refresh ? null : snap);
  const login = refresh ? store(id) : null;
  const parts = [address, view];
  if (refresh) parts.push(h("p", { class: "hint" }, "Click into the view and log in: your mouse and keys go to the page. Esc twice gives the keyboard back. Nothing of this is recorded."), login.form);
  const element = h("section", { class: "card screen" }, parts);
  if (refresh) listen(id, view, image);
  const at = (known) => (url.value ||= known || "");
  return { element, at, leave: () => image.removeAttribute("src") };
}

function store(id) {
  const domains = h("input", { placeholder: "github.com, api.github.com", autocomplete: "off", required: true });
  const save = h("button", { type: "submit" }, "Store cookies and close");
  let suggested = "";
  // The host of the page is what most operators want; what they wrote stays.
  const suggest = (url) => {
    if (domains.value !== suggested || !URL.canParse(url)) return;
    domains.value = suggested = new URL(url).hostname;
  };
  const form = h("form", { class: "pad stack", onsubmit: (event) => {
    event.preventDefault();
    attempt(async () => {
      const done = await api("POST", path("v1", "sessions", id, "store"), { domains: words(domains.value) });
      toast(done.stored.map((one) => `${one.domain}: ${one.cookie_count} ${one.cookie_count === 1 ? "cookie" : "cookies"} stored`).join(", "));
    }, save);
  } }, h("label", {}, "Domains whose cookies to store", domains), h("div", { class: "buttons" }, save));
  return { form, suggest };
}

function listen(id, view, image) {
  const modifiers = (event) => (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0);
  // One after the other, so that keys arrive in their order. Moves that wait are replaced by newer ones.
  const waiting = [];
  let sending = false;
  async function send(event) {
    const last = waiting.at(-1);
    if (event.kind === "move" && last?.kind === "move") waiting.pop();
    waiting.push(event);
    if (sending) return;
    sending = true;
    while (waiting.length) {
      try {
        await api("POST", path("v1", "sessions", id, "input"), waiting.shift());
      } catch (error) {
        toast(error.message);
        waiting.length = 0;
      }
    }
    sending = false;
  }
  function place(event) {
    const box = image.getBoundingClientRect();
    const scale = Math.min(box.width / image.naturalWidth, box.height / image.naturalHeight);
    const x = (event.clientX - box.left - (box.width - image.naturalWidth * scale) / 2) / scale;
    const y = (event.clientY - box.top - (box.height - image.naturalHeight * scale) / 2) / scale;
    const inside = x >= 0 && y >= 0 && x < image.naturalWidth && y < image.naturalHeight;
    return inside ? { x, y } : null;
  }
  const buttons = ["left", "middle", "right"];
  const mouse = (kind) => (event) => {
    const at = place(event);
    if (!at) return;
    const button = kind === "move" ? (event.buttons & 1 ? "left" : "none") : buttons[event.button] || "none";
    send({ type: "mouse", kind, ...at, button, clicks: kind === "move" ? 0 : Math.min(3, Math.max(1, event.detail || 1)), modifiers: modifiers(event) });
  };
  view.addEventListener("mousedown", (event) => {
    view.focus();
    event.preventDefault();
    mouse("down")(event);
  });
  view.addEventListener("mouseup", mouse("up"));
  view.addEventListener("mousemove", mouse("move"));
  view.addEventListener("contextmenu", (event) => event.preventDefault());
  view.addEventListener("wheel", (event) => {
    const at = place(event);
    if (!at) return;
    event.preventDefault();
    send({ type: "wheel", ...at, dx: event.deltaX, dy: event.deltaY });
  }, { passive: false });
  let escaped = 0;
  const key = (down) => (event) => {
    if (event.key === "Unidentified" || event.key === "Process" || event.key === "Dead") return;
    if (down && event.key === "Escape") {
      if (Date.now() - escaped < 800) return view.blur();
      escaped = Date.now();
    }
    // Pasting arrives as text.
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "v") return;
    event.preventDefault();
    send({ type: "key", down, key: event.key, modifiers: modifiers(event) });
  };
  view.addEventListener("keydown", key(true));
  view.addEventListener("keyup", key(false));
  view.addEventListener("paste", (event) => {
    event.preventDefault();
    const text = event.clipboardData.getData("text/plain");
    if (text) send({ type: "text", text });
  });
}
