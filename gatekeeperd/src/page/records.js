// The audit trail, grants, and credentials by domain.

import { ago, api, attempt, detail, dialog, h, path, short, toast, words } from "/dom.js";

const table = (heads, rows, empty) => rows.length
  ? h("div", { class: "scroll" }, h("table", { class: "cards" }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)))
  : h("div", { class: "empty" }, empty);
const failed = (error) => error.status !== 401 && toast(error.message);

export function audit(main) {
  const session = h("input", { placeholder: "any", autocomplete: "off", spellcheck: false });
  const action = h("input", { placeholder: "any", autocomplete: "off", spellcheck: false, "list": "actions" });
  const body = h("div", {});
  const more = h("button", { type: "button", class: "plain", hidden: true, onclick: (event) => attempt(() => load(true), event.target) }, "Older");
  let rows = [];
  async function load(older) {
    const query = new URLSearchParams({ limit: "100" });
    if (session.value.trim()) query.set("session_id", session.value.trim());
    if (action.value.trim()) query.set("action", action.value.trim());
    if (older && rows.length) query.set("before", rows.at(-1).id);
    const found = (await api("GET", `/v1/audit?${query}`)).audit;
    rows = older ? rows.concat(found) : found;
    more.hidden = found.length < 100;
    body.replaceChildren(table(["Time", "Action", "Session", "Details", "Actor"], rows.map(line), "No rows match."));
  }
  const line = (row) => h("tr", {}, h("td", { class: "soft small" }, new Date(row.at).toLocaleString([], { hour12: false })),
    h("td", {}, h("strong", {}, row.action)),
    h("td", {}, row.session_id ? h("a", { class: "mono", href: `#sessions/${row.session_id}` }, short(row.session_id)) : ""),
    h("td", { class: "mono small" }, detail(row)), h("td", { class: "mono small soft" }, short(row.actor)));
  const filters = h("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    load(false).catch(failed);
  } }, h("label", {}, "Session", session), h("label", {}, "Action", action), h("button", { type: "submit", class: "plain" }, "Filter"));
  const known = ["open_session", "close_session", "navigate", "screenshot", "click", "type", "scroll", "read_dom", "view_session", "issue_grant", "revoke_grant", "inject_cookies"];
  main.replaceChildren(h("div", { class: "row top" }, h("h1", { class: "grow" }, "Audit"), h("span", { class: "soft small" }, "Written before each action. Typed text is never in it.")),
    h("section", { class: "card" }, h("datalist", { id: "actions" }, known.map((value) => h("option", { value }))), filters, body),
    h("div", { class: "row", }, more));
  load(false).catch(failed);
  const acted = () => !session.value && !action.value && rows.length <= 100 && load(false).catch(() => {});
  addEventListener("action", acted);
  return () => removeEventListener("action", acted);
}

export function grants(main) {
  const body = h("section", { class: "card" });
  async function load() {
    const rows = (await api("GET", "/v1/grants")).grants;
    body.replaceChildren(table(["Domains", "State", "Issued", "Expires", "Id", ""], rows.map(line), "No grants. A grant lets one session use stored cookies."));
  }
  function state(row) {
    if (row.consumed_at && row.single_use) return ["badge", "used"];
    if (new Date(row.expires_at) < new Date()) return ["badge", "expired"];
    return row.single_use ? ["badge good", "valid once"] : ["badge warn", "valid, many uses"];
  }
  const line = (row) => {
    const [look, word] = state(row);
    const revoke = h("button", { type: "button", class: "danger", onclick: (event) => attempt(async () => {
      await api("DELETE", path("v1", "grants", row.jti));
      toast("The grant is revoked.");
      await load();
    }, event.target) }, "Revoke");
    return h("tr", {}, h("td", {}, h("strong", {}, row.allowed_domains.join(", "))), h("td", {}, h("span", { class: look }, word)), h("td", { class: "soft small" }, ago(row.issued_at)),
      h("td", { class: "soft small" }, new Date(row.expires_at).toLocaleTimeString([], { hour12: false })), h("td", { class: "mono small soft" }, short(row.jti)), h("td", { class: "actions" }, revoke));
  };
  function issue() {
    const domains = h("input", { placeholder: "github.com", required: true, autocomplete: "off" });
    const minutes = h("input", { type: "number", min: "1", max: "1440", value: "15", required: true });
    const many = h("input", { type: "checkbox" });
    const submit = h("button", { type: "submit" }, "Issue");
    const cancel = h("button", { type: "button", class: "plain", onclick: () => box.close() }, "Cancel");
    const form = h("form", { onsubmit: (event) => {
      event.preventDefault();
      attempt(async () => {
        const made = await api("POST", "/v1/grants", { domains: words(domains.value), ttl_seconds: Number(minutes.value) * 60, multi_use: many.checked });
        const copy = h("button", { type: "button", onclick: () => navigator.clipboard.writeText(made.grant_token).then(() => toast("Copied.")) }, "Copy");
        form.replaceChildren(h("h1", {}, "Grant issued"), h("div", { class: "secret" }, h("code", { id: "grant-token" }, made.grant_token), h("span", { class: "small soft" }, "Shown once. It is stored as a hash only.")),
          h("div", { class: "buttons" }, copy, h("button", { type: "button", class: "plain", onclick: () => box.close() }, "Done")));
        await load();
      }, submit);
    } }, h("h1", {}, "Issue a grant"), h("p", { class: "soft" }, "Lets a session of this tenant use the stored cookies of exactly these hosts."),
      h("label", {}, "Domains", domains), h("label", {}, "Valid for (minutes)", minutes), h("label", { class: "check" }, many, "May be used more than once"),
      h("div", { class: "buttons" }, cancel, submit));
    const box = dialog("Issue a grant", form);
  }
  main.replaceChildren(h("div", { class: "row top" }, h("h1", { class: "grow" }, "Grants"), h("button", { type: "button", "data-key": "n", title: "Key n", onclick: issue }, "Issue a grant")), body);
  load().catch(failed);
  const timer = setInterval(() => load().catch(() => {}), 10000);
  return () => clearInterval(timer);
}

export function credentials(main) {
  const body = h("section", { class: "card" });
  async function load() {
    const rows = (await api("GET", "/v1/credentials")).credentials;
    body.replaceChildren(table(["Domain", "Cookies", "Refreshed", "Last used", ""], rows.map(line), "No cookies are stored. Refresh a login, or import a file with gatekeeperd credential import."));
  }
  const line = (row) => h("tr", {}, h("td", {}, h("strong", {}, row.domain)), h("td", {}, h("span", { class: "badge tint" }, `${row.cookie_count} ${row.cookie_count === 1 ? "cookie" : "cookies"}`)),
    h("td", { class: "soft small" }, ago(row.last_refreshed_at)), h("td", { class: "soft small" }, row.last_injected_at ? ago(row.last_injected_at) : "never"),
    h("td", { class: "actions" }, h("button", { type: "button", class: "danger", onclick: (event) => attempt(async () => {
      await api("DELETE", path("v1", "credentials", row.domain));
      toast(`The cookies of ${row.domain} are removed.`);
      await load();
    }, event.target) }, "Remove")));
  const refresh = (event) => attempt(async () => (location.hash = `sessions/${(await api("POST", "/v1/refreshes")).session_id}`), event.target);
  main.replaceChildren(h("div", { class: "row top" }, h("h1", { class: "grow" }, "Credentials"), h("span", { class: "soft small" }, "Encrypted. Values are never shown."), h("button", { type: "button", onclick: refresh }, "Refresh a login")), body);
  load().catch(failed);
}
