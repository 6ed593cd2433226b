// One generation on the page: its strip, its counters, its text. Text only ever becomes text.

import { Strip } from "./strip.js";
import { facts, outcome, percent, seconds } from "./words.js";

const HOW = "Point at the strip, or move along it with the arrow keys: why did the models change?";

/** Text in lines, a span for each segment; lines keep the work per token small. */
class Written {
  constructor(element, spans) {
    this._element = element;
    this._spans = spans;
    this._line = this._node = this._segment = null;
  }

  add(segment, text) {
    this._element.parentElement.hidden = false;
    if (segment !== this._segment) this._turn(segment);
    text.split("\n").forEach((part, at) => {
      if (at || !this._line) this._newLine();
      if (part) this._write(part);
    });
  }

  /** No more text comes. */
  end() {
    this._line?.classList.remove("now");
  }

  _turn(segment) {
    const cue = segment.hand?.cue.trim();
    if (cue && this._node?.data.endsWith(cue)) {
      const told = document.createElement("b");
      const tail = this._node.splitText(this._node.length - cue.length);
      tail.replaceWith(told);
      told.append(tail);
    }
    this._segment = segment;
    this._node = null;
  }

  _newLine() {
    this.end();
    this._line = document.createElement("div");
    this._line.className = "line now";
    this._node = null;
    this._element.append(this._line);
  }

  _write(part) {
    if (this._node) {
      this._node.appendData(part);
      return;
    }
    const bare = part.trimStart();
    this._line.append(part.slice(0, part.length - bare.length)); // no line below a space in front
    if (!bare) return;
    const span = document.createElement("span");
    span.className = `by ${this._segment.model}`;
    span.dataset.segment = this._segment.number;
    this._node = document.createTextNode(bare);
    span.append(this._node);
    this._line.append(span);
    if (!this._spans.has(this._segment)) this._spans.set(this._segment, []);
    this._spans.get(this._segment).push(span);
  }
}

export class View {
  constructor(template, generation, scale) {
    this._generation = generation;
    this.element = template.content.cloneNode(true).firstElementChild;
    this._find = (selector) => this.element.querySelector(selector);
    this._spans = new Map();
    this._lit = null; // the segment that is pointed at
    this._waiting = []; // text that is not on the page yet
    this._texts = {
      reasoning: new Written(this._find("details .text"), this._spans),
      answer: new Written(this._find(".answer .text"), this._spans),
    };
    this._counts = Object.fromEntries(
      [...this.element.querySelectorAll("[data-count]")].map((each) => [each.dataset.count, each]),
    );
    this._find("h3").textContent = generation.name;
    this._caption = this._find(".caption");
    this._strip = new Strip(this._find(".strip"), generation, scale, {
      chosen: (segment) => this._light(segment),
      wanted: (segment) => this._bring(segment),
    });
    this._light(null);
    for (const text of this.element.querySelectorAll(".text")) {
      for (const kind of ["pointerover", "click"]) { // a finger has only the latter in the end
        text.addEventListener(kind, (event) => this._point(event.target));
      }
      text.addEventListener("pointerleave", (event) => this._strip.leave(event));
    }
  }

  add(segment, text) {
    const last = this._waiting.at(-1);
    if (last?.[0] === segment) last[1] += text;
    else this._waiting.push([segment, text]);
  }

  draw(now) {
    const generation = this._generation;
    for (const [segment, text] of this._waiting) this._texts[segment.stage].add(segment, text);
    this._waiting = [];
    if (generation.answer) this._texts.reasoning.end();
    this._strip.draw();
    this._stages();
    const took = generation.seconds(now);
    const { counts, tokens } = generation;
    this._count("large", counts.large);
    this._count("small", counts.small);
    this._count("utilization", percent(generation.utilization));
    this._count("handoffs", generation.handoffs);
    this._count("discarded", generation.discarded);
    this._count("pace", tokens && took ? (tokens / took).toFixed(1) : "–");
    this._count("elapsed", seconds(took));
  }

  /** It is over: say how it went. */
  end() {
    this.element.classList.add("ended");
    for (const text of Object.values(this._texts)) text.end();
    this._strip.end();
    const { problem } = this._generation;
    const alert = this._find(".problem");
    alert.textContent = problem;
    alert.hidden = !problem;
    say(this._find(".outcome"), outcome(this._generation));
  }

  _count(name, value) {
    const text = String(value);
    const element = this._counts[name];
    if (element.textContent !== text) element.textContent = text;
  }

  /** The band below the strip: where the thinking ends and the answer begins. */
  _stages() {
    const { answer, thinks, tokens } = this._generation;
    const band = this._find(".stages");
    band.classList.toggle("split", thinks);
    if (!thinks) return;
    band.classList.toggle("answered", Boolean(answer));
    band.style.setProperty("--from", answer?.from ?? tokens);
    band.style.setProperty("--tokens", answer ? tokens - answer.from : 0);
  }

  _light(segment) {
    const spans = (of) => this._spans.get(of) ?? [];
    if (segment !== this._lit) for (const span of spans(this._lit)) span.classList.remove("on");
    for (const span of spans(segment)) span.classList.add("on");
    this._lit = segment;
    const told = segment ? facts(segment, this._generation.segments.length).join(" · ") : HOW;
    if (this._caption.textContent !== told) this._caption.textContent = told;
    this._caption.classList.toggle("faint", !segment);
  }

  _point(element) {
    const number = element.closest("[data-segment]")?.dataset.segment;
    if (number) this._strip.select(Number(number));
  }

  /** The segment's text into view, out of a folded thinking if need be. */
  _bring(segment) {
    const span = this._spans.get(segment)?.[0];
    const folded = span?.closest("details");
    if (folded) folded.open = true;
    span?.scrollIntoView({ block: "center" });
  }
}

/** One paragraph for each sentence. */
export function say(element, sentences) {
  element.replaceChildren(
    ...sentences.map((text) => {
      const paragraph = document.createElement("p");
      paragraph.textContent = text;
      return paragraph;
    }),
  );
}
