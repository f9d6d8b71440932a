// Line plots over the last minutes, one value a second.

const SECONDS = 300;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rate = (v) => (v >= 100 ? v.toFixed(0) : v.toFixed(1));
const millis = (v) => (v >= 1 ? v.toFixed(v < 10 ? 2 : 1) + " s" : v >= 0.0995 ? (v * 1000).toFixed(0) + " ms" : (v * 1000).toFixed(1) + " ms");

// axis writes a bound without zeros behind the point.
const axis = (text) => text.replace(/(\.\d*?)0+(?=$| )/, "$1").replace(/\.(?=$| )/, "");

const PLOTS = [
  { title: "Tokens a second", lines: [["tokens", "made"], ["prompt", "read"]], format: rate, gaps: false },
  { title: "Time to first token", lines: [["ttft50", "p50"], ["ttft95", "p95"]], format: millis, gaps: true },
  { title: "Between tokens", lines: [["itl50", "p50"], ["itl95", "p95"]], format: millis, gaps: true },
  { title: "Requests a second", lines: [["requests", "ended"], ["refused", "refused"]], format: rate, gaps: false },
];

// round gives the next number of 1, 2, 5 times a power of ten.
function round(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= v * 0.999);
}

export class Plots {
  constructor(box) {
    this.points = [];
    this.parts = PLOTS.map((p) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption"), canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      const title = document.createElement("strong"), values = document.createElement("span");
      title.textContent = p.title;
      caption.append(title, values);
      figure.append(caption, canvas);
      box.append(figure);
      const marks = p.lines.map((_, i) => {
        const mark = document.createElement("i");
        if (i === 1) mark.className = "two";
        values.append(mark);
        return mark;
      });
      return { ...p, canvas, marks };
    });
  }

  // newest is the last value of a line that was measured at all, or 0.
  newest(key) {
    for (let i = this.points.length - 1; i >= 0; i--) if (this.points[i][key]) return this.points[i][key];
    return 0;
  }

  begin(points) {
    this.points = points.slice(-SECONDS);
    this.repaint();
  }

  add(point) {
    if (!point || (this.points.length && this.points[this.points.length - 1].time >= point.time)) return;
    this.points.push(point);
    if (this.points.length > SECONDS) this.points.shift();
    this.repaint();
  }

  repaint() {
    for (const p of this.parts) this.draw(p);
  }

  draw(p) {
    const width = p.canvas.clientWidth || 300, height = 150, scale = devicePixelRatio || 1;
    p.canvas.width = Math.round(width * scale);
    p.canvas.height = Math.round(height * scale);
    const c = p.canvas.getContext("2d");
    c.scale(scale, scale);
    const values = this.points.flatMap((q) => p.lines.map(([k]) => q[k]));
    const top = round(Math.max(p.format === millis ? 0.001 : 1, ...values));
    const left = 58, bottom = 20, w = width - left - 6, h = height - bottom - 8;
    c.font = "12px system-ui, sans-serif";
    c.fillStyle = style("--soft");
    c.strokeStyle = style("--line");
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const f of [0, 0.5, 1]) {
      const y = Math.round(8 + h * (1 - f)) + 0.5;
      c.beginPath(); c.moveTo(left, y); c.lineTo(left + w, y); c.stroke();
      c.fillText(f === 0 ? "0" : axis(p.format(top * f)), left - 8, y);
    }
    c.textBaseline = "alphabetic";
    c.textAlign = "left";
    c.fillText("5 min ago", left, height - 4);
    c.textAlign = "right";
    c.fillText("now", left + w, height - 4);
    const now = this.points.length ? this.points[this.points.length - 1].time : 0;
    p.lines.forEach(([key, name], i) => {
      c.strokeStyle = style(i ? "--two" : "--one");
      c.fillStyle = c.strokeStyle;
      c.lineWidth = 2;
      c.setLineDash(i ? [5, 3] : []);
      c.beginPath();
      let down = false, latest = null, dots = [];
      for (const q of this.points) {
        const x = left + w * (1 - (now - q.time) / 1000 / SECONDS);
        if (x < left) continue;
        if (p.gaps && !q[key]) { down = false; continue; }
        latest = q[key];
        const y = 8 + h * (1 - Math.min(1, q[key] / top));
        if (down) c.lineTo(x, y);
        else { c.moveTo(x, y); dots.push([x, y]); }
        down = true;
      }
      c.stroke();
      c.setLineDash([]);
      if (p.gaps) for (const [x, y] of dots) c.fillRect(x - 1.5, y - 1.5, 3, 3);
      p.marks[i].textContent = `${name} ${latest === null ? "none yet" : p.format(latest)}`;
    });
    p.canvas.setAttribute("aria-label", `${p.title}: ` + p.marks.map((m) => m.textContent).join(", "));
  }
}
