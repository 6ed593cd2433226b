// The strip of segments along a generation. A slider for the keyboard and for screen readers: its
// steps are the segments.

import { facts } from "./words.js";

const FIRST = 64; // tokens that the strip holds at the start
const JUMP = 10;

/** How many tokens the strips hold: shared by all of a question, so that lengths compare. */
export class Scale {
  constructor() {
    this.capacity = FIRST;
    this._places = [];
  }

  /** A place whose strip has this scale. */
  add(place) {
    this._places.push(place);
    this._tell();
  }

  /** Make room; doubling keeps what is drawn in its place most of the time. */
  hold(tokens) {
    if (tokens <= this.capacity) return;
    while (this.capacity < tokens) this.capacity *= 2;
    this._tell();
  }

  /** Nothing more comes: the longest generation fills its strip. */
  settle(tokens) {
    this.capacity = Math.max(1, tokens);
    this._tell();
  }

  _tell() {
    for (const place of this._places) place.style.setProperty("--unit", `${100 / this.capacity}%`);
  }
}

export class Strip {
  /** `chosen` is told the segment that is pointed at, again as it grows, or null; `wanted` the one
   * that is opened. */
  constructor(element, generation, scale, { chosen, wanted }) {
    this._element = element;
    this._generation = generation;
    this._scale = scale;
    this._chosen = chosen;
    this._wanted = wanted;
    this._marks = [];
    this._selected = null;
    element.ariaLabel = `Segments of ${generation.name}: arrow keys go from one to the next`;
    this._pin = document.createElement("span");
    this._pin.className = "pin";
    this._pin.hidden = true;
    element.append(this._pin);
    scale.add(element.parentElement);
    element.addEventListener("keydown", (event) => this._key(event));
    element.addEventListener("focus", () => this.select(this._selected ?? 1));
    element.addEventListener("blur", () => this.select(null));
    element.addEventListener("pointermove", (event) => this.select(this._at(event)));
    element.addEventListener("pointerdown", (event) => this.select(this._at(event)));
    element.addEventListener("pointerleave", (event) => this.leave(event));
    element.addEventListener("click", () => this._open());
  }

  /** Draws what is new. Only the last segment drawn and those after it can have changed. */
  draw() {
    const { segments, tokens } = this._generation;
    this._scale.hold(tokens);
    for (let at = Math.max(0, this._marks.length - 1); at < segments.length; at += 1) {
      const segment = segments[at];
      const mark = this._marks[at] ?? this._mark(segment);
      mark.style.setProperty("--from", segment.from);
      mark.style.setProperty("--tokens", segment.tokens);
    }
    if (this._element.ariaValueMax !== String(segments.length)) {
      this._element.ariaValueMax = segments.length;
    }
    if (this._selected) this._show(segments[this._selected - 1]); // it may be growing
  }

  /** No more comes. Only now is the selected segment told anew: not at each of its tokens. */
  end() {
    if (this._selected) this.select(this._selected);
  }

  /** Point at the segment of this number; null at none. */
  select(number) {
    const segment = this._generation.segments[number - 1] ?? null;
    this._marks[this._selected - 1]?.classList.remove("on");
    this._selected = segment?.number ?? null;
    if (segment) {
      this._marks[number - 1]?.classList.add("on");
      this._element.ariaValueMin = 1;
      this._element.ariaValueNow = number;
      this._element.ariaValueText = facts(segment, this._generation.segments.length).join(", ");
    }
    this._show(segment);
  }

  /** The pointer went away: the keyboard's place, if it has one, counts again. A finger that is
   * lifted did not go away. */
  leave({ pointerType }) {
    if (pointerType !== "touch" && document.activeElement !== this._element) this.select(null);
  }

  _show(segment) {
    this._pin.hidden = !segment;
    if (segment) this._pin.style.setProperty("--at", segment.from + segment.tokens / 2);
    this._chosen(segment);
  }

  _mark(segment) {
    const mark = document.createElement("span");
    mark.className = `mark ${segment.model} ${segment.stage}`;
    this._marks.push(mark);
    this._element.append(mark);
    return mark;
  }

  _at(event) {
    const box = this._element.getBoundingClientRect();
    const token = ((event.clientX - box.left) / box.width) * this._scale.capacity;
    const { segments, tokens } = this._generation;
    if (token < 0 || token > tokens) return null;
    let low = 0;
    let high = segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (segments[middle].from <= token) low = middle;
      else high = middle - 1;
    }
    return low + 1;
  }

  _key(event) {
    const last = this._generation.segments.length;
    const now = this._selected ?? 0;
    const steps = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: now - 1,
      ArrowDown: now - 1,
      PageUp: now + JUMP,
      PageDown: now - JUMP,
      Home: 1,
      End: last,
    };
    if (event.key in steps) this.select(Math.min(last, Math.max(1, steps[event.key])));
    else if (event.key === "Enter" || event.key === " ") this._open();
    else if (event.key === "Escape") this.select(null);
    else return;
    event.preventDefault();
  }

  _open() {
    const segment = this._generation.segments[this._selected - 1];
    if (segment) this._wanted(segment);
  }
}
