// One generation as its stream tells it: who wrote what, and what it cost. No page in here.

/**
 * A run of tokens by one writer in one stage.
 *
 * `number` counts from 1. `tokens` counts chunks while it is written, and is exact once the server told where it ended.
 * `hand` is the hand-off that brought it about, as the server told it, or null. Times are
 * milliseconds of `performance.now()`.
 */
class Segment {
  constructor(number, model, stage, from, hand, at) {
    this.number = number;
    this.model = model;
    this.stage = stage;
    this.from = from;
    this.tokens = 0;
    this.hand = hand;
    this.began = this.latest = at;
    this.pieces = [];
  }

  get text() {
    return this.pieces.join("");
  }
}

export class Generation {
  constructor(name) {
    this.name = name;
    this.segments = [];
    this.counts = { large: 0, small: 0, inserted: 0 };
    this.discarded = 0;
    this.handoffs = 0;
    this.thinks = false;
    this.answer = null; // the answer's first segment
    this.summary = null; // the server's own, at the end
    this.finish = ""; // why it ended; "stopped" and "failed" are this page's
    this.problem = "";
    this.began = this.ended = this.first = null;
    this._current = null; // the segment that is being written
    this._from = 0; // where the next one begins
    this._hand = null; // what brings it about
    this._inserted = 0; // tokens of an insertion whose place is not known yet
  }

  start(at) {
    this.began = at;
  }

  /** Reads one chunk; gives [segment, text] where it brought text. */
  take(chunk, at) {
    const relay = chunk.relay || {};
    const choice = chunk.choices[0];
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (relay.policy) this._sum(relay);
    if (relay.event === "handoff") this._handedOff(relay, at);
    if (relay.event === "insertion") this._inserted += relay.tokens;
    if (relay.event === "stage") this._close(relay.token, at);
    if (!choice) return null;
    const { content, reasoning_content: one, reasoning: other } = choice.delta;
    const text = content || one || other || "";
    return text ? [this._write(relay, content ? "answer" : "reasoning", text, at), text] : null;
  }

  end(at, finish = "") {
    this.ended = at;
    if (finish) this.finish = finish;
  }

  get tokens() {
    return this.counts.large + this.counts.small + this.counts.inserted;
  }

  get utilization() {
    const written = this.counts.large + this.counts.small;
    return written ? this.counts.large / written : null;
  }

  seconds(now) {
    return this.began === null ? 0 : ((this.ended ?? now) - this.began) / 1000;
  }

  text(stage) {
    return this.segments.filter((each) => each.stage === stage).map((each) => each.text).join("");
  }

  _write(relay, channel, text, at) {
    const stage = relay.stage || channel;
    const model = relay.model || "large";
    if (stage === "reasoning") this.thinks = true;
    if (this._current?.model !== model || this._current.stage !== stage) {
      if (this._current) this._close(this._current.from + this._current.tokens, at);
      this._open(model, stage, at);
    }
    const segment = this._current;
    this.first ??= at;
    segment.pieces.push(text);
    segment.latest = at;
    this._add(segment, 1);
    return segment;
  }

  _open(model, stage, at) {
    this._current = new Segment(
      this.segments.length + 1, model, stage, this._from, this._hand, at,
    );
    this._hand = null;
    this.segments.push(this._current);
    if (stage === "answer") this.answer ??= this._current;
    return this._current;
  }

  _add(segment, tokens) {
    segment.tokens += tokens;
    this.counts[segment.model] += tokens;
  }

  _handedOff(told, at) {
    this.handoffs += 1;
    this.discarded += told.discarded;
    this._close(told.token, at, told.source);
    this._hand = told;
  }

  /** The text before `token` is told in full: the segment's end is known. */
  _close(token, at, writer = "large") {
    const end = token - this._inserted;
    if (this._current) {
      this._add(this._current, end - this._current.from - this._current.tokens);
    } else if (end > this._from) {
      const stage = this.segments.at(-1)?.stage ?? "answer"; // it wrote nothing that can be seen
      this._add(this._open(this._hand?.target ?? writer, stage, at), end - this._from);
    }
    this._from = end;
    if (this._inserted) {
      const stage = this.segments.at(-1)?.stage ?? "reasoning";
      this._add(this._open("inserted", stage, at), this._inserted);
      this._from = token;
    }
    this._inserted = 0;
    this._current = null;
  }

  _sum(summary) {
    this.summary = summary;
    const { large, small, inserted, discarded } = summary.tokens;
    const total = large + small + inserted;
    const last = this._current ?? this.segments.at(-1);
    if (last) last.tokens = total - last.from;
    this.counts = { large, small, inserted };
    this.discarded = discarded;
    this.handoffs = summary.handoffs;
  }
}
