// The slider over the journal. The journal is read by the server when the slider is used for the first time.

export class Slider {
  constructor(box, to) {
    this.box = box;
    this.to = to;
    this.inPast = false;
    this.known = false;  // the range is the journal's
    this.asking = false;
    this.next = null;    // what was asked for while an answer was on its way
    const $ = (id) => box.querySelector("#" + id);
    [this.range, this.when, this.back] = [$("slider"), $("when"), $("live")];
    this.range.addEventListener("focus", () => this.learn());
    this.range.addEventListener("pointerdown", () => this.learn());
    this.range.addEventListener("input", () => this.moved());
    this.back.addEventListener("click", () => this.live());
    $("earlier").addEventListener("click", () => this.step(-1));
    $("later").addEventListener("click", () => this.step(1));
  }

  offer(there) { this.box.hidden = !there; }

  // learn asks how far back the journal goes.
  async learn() {
    if (this.known || this.learning) return this.learning;
    this.when.textContent = "reading the journal";
    this.learning = this.ask("").then((e) => {
      this.learning = null;
      if (!e) return;
      this.known = true;
      const part = Number(this.range.value) / Number(this.range.max || 1);
      this.bounds(e);
      this.range.value = this.inPast || part < 1 ? Math.round(e.first + part * (e.last - e.first)) : e.last;
      if (Number(this.range.value) < e.last) this.moved();
      else this.when.textContent = "now";
    });
    return this.learning;
  }

  bounds(e) {
    this.range.min = e.first;
    this.range.max = e.last;
  }

  async step(by) {
    await this.learn();
    if (!this.known) return;
    this.range.value = Number(this.range.value) + by;
    this.moved();
  }

  moved() {
    if (!this.known) return;
    const at = Number(this.range.value);
    if (this.asking) { this.next = at; return; }
    this.show(at);
  }

  async show(at) {
    this.asking = true;
    const m = await this.ask("?at=" + at);
    this.asking = false;
    const next = this.next;
    this.next = null;
    if (m) {
      const value = this.range.value;
      this.bounds(m);
      this.range.value = value;
      this.inPast = true;
      this.back.disabled = false;
      const time = new Date(m.time);
      const clock = time.toLocaleTimeString("en-GB") + "." + String(time.getMilliseconds()).padStart(3, "0");
      const day = time.toDateString() === new Date().toDateString() ? "" : time.toLocaleDateString("en-CA") + " ";
      this.when.textContent = `after message ${m.at.toLocaleString("en")} of ${m.last.toLocaleString("en")}, ${day}${clock}`;
      this.range.setAttribute("aria-valuetext", this.when.textContent);
      this.to.past(m);
    }
    if (next !== null && next !== at) this.show(next);
  }

  live() {
    this.inPast = false;
    this.next = null;
    this.known = false; // it has grown
    this.back.disabled = true;
    this.range.value = this.range.max;
    this.when.textContent = "now";
    this.range.setAttribute("aria-valuetext", "now");
    this.to.live();
    this.range.focus();
  }

  async ask(query) {
    try {
      const r = await fetch("/console/api/past" + query);
      const body = await r.json();
      if (r.ok) return body;
      this.when.textContent = body.error ? body.error.message : "the journal cannot be read";
    } catch (e) {
      this.when.textContent = "the router does not answer";
    }
    return null;
  }
}
