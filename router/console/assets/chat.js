// The chat box asks the ordinary chat endpoint, with the user's own key where keys are asked for. The key is kept in this page alone.

export class Chat {
  constructor(form, log) {
    this.form = form;
    this.log = log;
    this.talk = []; // messages so far
    this.abort = null;
    const $ = (id) => form.querySelector("#" + id);
    [this.keyLabel, this.key, this.say, this.send, this.halt] = [$("key-label"), $("key"), $("say"), $("send"), $("halt")];
    form.addEventListener("submit", (e) => { e.preventDefault(); this.ask(); });
    this.say.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); this.ask(); }
    });
    this.halt.addEventListener("click", () => this.abort && this.abort.abort());
    $("clear").addEventListener("click", () => {
      if (this.abort) this.abort.abort();
      this.talk = [];
      this.log.replaceChildren();
      this.say.focus();
    });
  }

  keyed(is) { this.keyLabel.hidden = !is; }

  line(who, text, className) {
    const p = document.createElement("p"), b = document.createElement("b"), span = document.createElement("span");
    b.textContent = who;
    span.textContent = text;
    p.append(b, span);
    if (className) p.className = className;
    this.log.append(p);
    this.log.scrollTop = this.log.scrollHeight;
    return span;
  }

  async ask() {
    const text = this.say.value.trim();
    if (!text || this.abort) return;
    this.say.value = "";
    this.line("you", text);
    const messages = [...this.talk, { role: "user", content: text }];
    this.abort = new AbortController();
    this.send.disabled = true;
    this.halt.disabled = false;
    const began = performance.now();
    try {
      const said = await this.stream(messages, began);
      this.talk = [...messages, { role: "assistant", content: said }];
    } catch (e) {
      this.line("", e.name === "AbortError" ? "Stopped." : e.message, "bad");
    }
    this.abort = null;
    this.send.disabled = false;
    this.halt.disabled = true;
  }

  // stream shows an answer as it comes, and gives it. An answer without its last line is no answer.
  async stream(messages, began) {
    const headers = { "Content-Type": "application/json" };
    if (!this.keyLabel.hidden) headers.Authorization = "Bearer " + this.key.value;
    const r = await fetch("/v1/chat/completions", {
      method: "POST", headers, signal: this.abort.signal, body: JSON.stringify({ messages, stream: true }),
    });
    if (!r.ok) {
      const body = await r.json().catch(() => null);
      throw new Error(body && body.error ? `${body.error.code}: ${body.error.message}` : `HTTP ${r.status}`);
    }
    const out = this.line("model", "");
    let first = 0, tokens = 0, rest = "", reason = "", done = false;
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done: over } = await reader.read();
      if (over) break;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const e of events) {
        if (!e.startsWith("data: ")) continue;
        if (e === "data: [DONE]") { done = true; continue; }
        const body = JSON.parse(e.slice(6));
        if (body.error) throw new Error(`${body.error.code}: ${body.error.message}`);
        const choice = body.choices && body.choices[0];
        if (!choice) continue;
        if (choice.delta && choice.delta.content) {
          first = first || performance.now();
          tokens++;
          out.textContent += choice.delta.content;
          this.log.scrollTop = this.log.scrollHeight;
        }
        reason = choice.finish_reason || reason;
      }
    }
    if (!done) throw new Error("The answer broke off.");
    const note = document.createElement("small");
    note.textContent = `${reason}, ${tokens} pieces, first after ${((first || performance.now()) - began).toFixed(0)} ms, all after ${(performance.now() - began).toFixed(0)} ms`;
    out.parentElement.append(note);
    this.log.scrollTop = this.log.scrollHeight;
    return out.textContent;
  }
}
