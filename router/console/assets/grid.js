// Page grids: one canvas for each worker's pool, a cell for each page, or for several where there are too many.

const STATES = ["free", "reserved", "filling", "owned", "zeroing", "quarantined"];
const WEIGHT = { free: 0, zeroing: 1, reserved: 2, filling: 3, owned: 4, quarantined: 5 }; // which state a cell of several pages shows
const MAX_CELLS = 6000;
const HINT = "Point at a page, or focus a pool and use the arrow keys.";
const HEIGHT = 230; // CSS pixels that a grid should not exceed

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// paint draws one cell. The shape tells the state without the colour.
function paint(c, state, colour, x, y, size) {
  const gap = size > 5 ? 1.5 : size > 3 ? 1 : 0;
  const s = size - gap;
  c.fillStyle = c.strokeStyle = colour;
  switch (size >= 8 ? state : "plain") {
    case "reserved": // hollow
      c.lineWidth = Math.max(1.5, s / 6);
      c.strokeRect(x + c.lineWidth / 2, y + c.lineWidth / 2, s - c.lineWidth, s - c.lineWidth);
      break;
    case "filling": // half full
      c.lineWidth = 1.2;
      c.strokeRect(x + 0.6, y + 0.6, s - 1.2, s - 1.2);
      c.fillRect(x, y + s / 2, s, s / 2);
      break;
    case "zeroing": // a dot that is left
      c.fillRect(x + s / 4, y + s / 4, s / 2, s / 2);
      break;
    case "quarantined": // crossed out
      c.fillRect(x, y, s, s);
      c.strokeStyle = style("--panel");
      c.lineWidth = Math.max(1.2, s / 7);
      c.beginPath();
      c.moveTo(x + 1.5, y + 1.5); c.lineTo(x + s - 1.5, y + s - 1.5);
      c.moveTo(x + s - 1.5, y + 1.5); c.lineTo(x + 1.5, y + s - 1.5);
      c.stroke();
      break;
    default:
      c.fillRect(x, y, s, s);
  }
}

class Grid {
  constructor(all) {
    this.all = all;
    this.cursor = -1; // cell under the keyboard or the pointer; -1 = none
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "page grid, arrow keys move");
    this.canvas.setAttribute("aria-describedby", "cell");
    this.figure.append(this.caption, this.canvas);
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("focus", () => this.at(Math.max(0, this.cursor)));
    this.canvas.addEventListener("blur", () => this.at(-1));
    this.canvas.addEventListener("pointermove", (e) => this.at(this.hit(e)));
    this.canvas.addEventListener("pointerdown", (e) => this.at(this.hit(e)));
    this.canvas.addEventListener("pointerleave", () => { if (document.activeElement !== this.canvas) this.at(-1); });
  }

  // show takes a pool and makes an array of who has each page.
  show(pool) {
    this.pool = pool;
    this.pages = new Array(pool.pages).fill(null);
    for (const o of pool.owners) for (const [from, to] of o.runs) for (let p = from; p < Math.min(to, pool.pages); p++) this.pages[p] = o;
    const name = document.createElement("strong");
    name.textContent = `${pool.role} ${pool.id}`;
    const text = document.createElement("span");
    const used = STATES.map((s, i) => [s, pool.states[i]]).filter(([, n]) => n > 0).map(([s, n]) => `${n.toLocaleString("en")} ${s}`);
    text.textContent = `${pool.pages.toLocaleString("en")} pages of ${pool.page_size}: ${used.join(", ")}` + (pool.omitted ? `, ${pool.omitted} hand-offs not listed` : "");
    this.caption.replaceChildren(name, text);
    this.canvas.setAttribute("aria-label", `Pool of ${pool.role} ${pool.id}: ${text.textContent}`);
    this.canvas.dataset.worker = `${pool.role} ${pool.id}`;
    this.canvas.dataset.held = String(this.pages.filter((o) => o).length);
    this.repaint();
  }

  layout() {
    const width = this.figure.clientWidth || 300;
    this.per = Math.max(1, Math.ceil(this.pages.length / MAX_CELLS));
    this.cells = Math.ceil(this.pages.length / this.per);
    this.size = [16, 14, 12, 10, 8, 7, 6, 5, 4].find((s) => Math.ceil(this.cells / Math.max(1, Math.floor(width / s))) * s <= HEIGHT) || 4;
    this.columns = Math.max(1, Math.floor(width / this.size));
    this.rows = Math.ceil(this.cells / this.columns);
    return width;
  }

  repaint() {
    if (!this.pool) return;
    const width = this.layout(), height = this.rows * this.size + 3, scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = height + "px";
    const c = this.canvas.getContext("2d");
    c.scale(scale, scale);
    c.translate(1, 1);
    const colours = Object.fromEntries(STATES.map((s) => [s, style("--" + s)]));
    const light = style("--owner-light");
    for (let i = 0; i < this.cells; i++) {
      const o = this.shown(i), state = o ? o.state : "free";
      let colour = colours[state];
      if (o && this.all.by !== "state") {
        const w = this.all.by === "tenant" ? o.tenant : o.handoff;
        colour = w.name ? `hsl(${w.hue} 62% ${light})` : colours.zeroing;
      }
      paint(c, state, colour, (i % this.columns) * this.size, Math.floor(i / this.columns) * this.size, this.size);
    }
    if (this.cursor >= 0 && this.cursor < this.cells) {
      c.strokeStyle = style("--ink");
      c.lineWidth = 2;
      c.strokeRect((this.cursor % this.columns) * this.size - 1, Math.floor(this.cursor / this.columns) * this.size - 1, this.size, this.size);
    }
  }

  // shown is the owner that a cell shows: of several pages, the one whose state matters most.
  shown(i) {
    let best = null;
    for (let p = i * this.per; p < Math.min((i + 1) * this.per, this.pages.length); p++) {
      const o = this.pages[p];
      if (o && (!best || WEIGHT[o.state] > WEIGHT[best.state])) best = o;
    }
    return best;
  }

  hit(e) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor((e.clientX - box.left - 1) / this.size), y = Math.floor((e.clientY - box.top - 1) / this.size);
    const i = y * this.columns + x;
    return x >= 0 && x < this.columns && y >= 0 && i < this.cells ? i : -1;
  }

  key(e) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -5 * this.columns, PageDown: 5 * this.columns }[e.key];
    let to;
    if (step !== undefined) to = Math.max(0, this.cursor) + step;
    else if (e.key === "Home") to = 0;
    else if (e.key === "End") to = this.cells - 1;
    else return;
    e.preventDefault();
    if (to >= 0 && to < this.cells) this.at(to);
  }

  at(cell) {
    if (cell === this.cursor) return;
    this.cursor = cell;
    this.repaint();
    this.all.tell(cell >= 0 ? this.describe(cell) : "");
  }

  describe(i) {
    const from = i * this.per, to = Math.min(from + this.per, this.pages.length) - 1, o = this.shown(i);
    const where = `${this.pool.role} ${this.pool.id}, ${from === to ? "page " + from : `pages ${from} to ${to}`}`;
    if (!o) return `${where}: free`;
    const parts = [`${where}: ${o.state}`, `hand-off ${o.handoff.name}`];
    if (o.tenant.name) parts.push(`of ${o.tenant.name}`);
    if (o.step && o.step !== o.state) parts.push(o.step);
    if (o.prompt) parts.push(`prompt of ${o.prompt.toLocaleString("en")}`);
    if (o.rows) parts.push(`${o.rows.toLocaleString("en")} rows in the pages`);
    if (o.output) parts.push(`${o.output.toLocaleString("en")} tokens made`);
    return parts.join(", ");
  }
}

// Grids are all pools of a moment.
export class Grids {
  constructor(box, note, cell, legend) {
    this.box = box;
    this.note = note;
    this.cell = cell;
    this.legend = legend;
    this.grids = new Map();
    this.by = "state";
    this.key = [];
    for (const s of STATES) {
      const li = document.createElement("li"), canvas = document.createElement("canvas");
      canvas.setAttribute("aria-hidden", "true");
      li.append(canvas, s);
      legend.append(li);
      this.key.push([s, canvas]);
    }
  }

  // tell describes a page, or says how to have one described.
  tell(text) { this.cell.textContent = text || HINT; }

  colourBy(what) {
    this.by = what;
    this.repaint();
  }

  show(pools, past) {
    const seen = new Set();
    for (const p of pools) {
      const name = `${p.role} ${p.id}@${p.epoch}`;
      seen.add(name);
      if (!this.grids.has(name)) {
        this.grids.set(name, new Grid(this));
      }
      const g = this.grids.get(name);
      if (this.box.children[seen.size - 1] !== g.figure) this.box.insertBefore(g.figure, this.box.children[seen.size - 1] || null);
      g.show(p);
    }
    for (const [name, g] of this.grids) {
      if (seen.has(name)) continue;
      g.figure.remove();
      this.grids.delete(name);
    }
    const text = past ? "The journal tells decode's pools; prefill's facts come at the end of its leg." : pools.length ? "" : "No worker answers.";
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  repaint() {
    for (const g of this.grids.values()) g.repaint();
    for (const [s, canvas] of this.key) {
      const scale = devicePixelRatio || 1;
      canvas.width = canvas.height = Math.round(14 * scale);
      const c = canvas.getContext("2d");
      c.scale(scale, scale);
      paint(c, s, this.by === "state" || s === "free" ? style("--" + s) : style("--soft"), 0, 0, 14);
    }
  }
}
