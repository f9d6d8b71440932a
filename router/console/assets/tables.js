// Figures and tables. Everything is set as text.

const count = (n) => n.toLocaleString("en");
const millis = (s) => (s === 0 ? "\u2013" : s >= 1 ? s.toFixed(s < 10 ? 2 : 1) + " s" : (s * 1000).toFixed(s < 0.0995 ? 1 : 0) + " ms");

function cell(row, text, className) {
  const td = document.createElement("td");
  td.textContent = text;
  if (className) td.className = className;
  row.append(td);
  return td;
}

function named(row, who, className) {
  const td = cell(row, "", className);
  if (!who.name) { td.textContent = "unknown"; return; }
  const dot = document.createElement("span");
  dot.className = "dot";
  dot.style.background = `hsl(${who.hue} 62% ${getComputedStyle(document.documentElement).getPropertyValue("--owner-light").trim()})`;
  const name = who.name.length > 12 && /^[0-9a-f]+$/.test(who.name) ? who.name.slice(0, 8) + "…" : who.name;
  td.append(dot, name);
  if (name !== who.name) td.title = who.name;
}

function nothing(body, columns, text) {
  const row = document.createElement("tr");
  cell(row, text, "empty").colSpan = columns;
  body.replaceChildren(row);
}

export function figures(list, v, ttft) {
  const c = v.counts, p = v.point;
  const rows = [
    ["running", count(c.running)], ["prefilling", count(c.prefilling)], ["waiting", count(c.waiting)],
    ["tokens / s", p ? p.tokens.toFixed(p.tokens >= 100 ? 0 : 1) : "0.0"], ["first token", millis(ttft)],
    ["requests", count(c.requests)], ["ended well", count(c.good)], ["retries", count(c.retries)],
    ["refused pages", count(c.corrupt), c.corrupt > 0 ? "bad" : ""],
    ["workers", `${c.prefills} + ${c.decodes}`],
  ];
  if (list.childElementCount !== rows.length) {
    list.replaceChildren(...rows.map(() => {
      const div = document.createElement("div");
      div.append(document.createElement("dt"), document.createElement("dd"));
      return div;
    }));
  }
  rows.forEach(([name, value, mark], i) => {
    const [dt, dd] = list.children[i].children;
    if (dt.textContent !== name) dt.textContent = name;
    if (dd.textContent !== value) dd.textContent = value;
    dd.className = mark || "";
  });
}

function age(ms) {
  return ms < 10000 ? (ms / 1000).toFixed(1) + " s" : ms < 120000 ? Math.round(ms / 1000) + " s" : Math.round(ms / 60000) + " min";
}

export function flights(body, more, list, all) {
  if (!list.length) nothing(body, 7, "None.");
  else {
    body.replaceChildren(...list.map((f) => {
      const row = document.createElement("tr");
      named(row, f.handoff, "id");
      named(row, f.tenant, "");
      cell(row, f.step + (f.attempt > 1 ? `, attempt ${f.attempt}` : ""));
      cell(row, [f.prefill, f.decode].filter((x) => x).join(" → ") || "none yet");
      cell(row, f.step === "filling" && f.rows !== null ? `${count(f.rows)} of ${count(f.prompt)}` : count(f.prompt), "n");
      cell(row, f.max === null ? (f.output ? count(f.output) : "") : `${count(f.output)} of ${count(f.max)}`, "n");
      cell(row, f.age === null ? "" : age(f.age), "n");
      return row;
    }));
  }
  more.textContent = all !== null && all > list.length ? `${count(all - list.length)} more are not listed.` : "";
}

export function refusals(body, list) {
  if (!list.length) { nothing(body, 4, "Nothing has been refused."); return; }
  body.replaceChildren(...list.map((r) => {
    const row = document.createElement("tr");
    cell(row, r.code, "id");
    cell(row, r.class);
    cell(row, count(r.count), "n");
    cell(row, r.help, "long");
    return row;
  }));
}

// turned tells in one line which messages processes turned away.
export function turned(p, list) {
  const text = list.length ? list.map((t) => `${t.who}: ${count(t.count)} ${t.reason.replaceAll("_", " ")}`).join("; ") : "None.";
  if (p.textContent !== text) p.textContent = text;
}
