/** Virtual scrolling of a table: only the visible rows and some around them are in the document. */

/** Up to this number, all rows are drawn, so that the browser's own search finds them. */
const ALL = 500;
/** The number of rows that are drawn before and after the visible ones. */
const AROUND = 20;
const USUAL_HEIGHT = 28;
const USUAL_FRAME = 800;

export class RowWindow {
  /** `rowAt(position)` creates the elements of a row; `frame` is the scrolling element. */
  constructor(frame, body, rowAt) {
    Object.assign(this, { frame, body, rowAt, count: 0, heights: new Float64Array(0), drawn: new Map() });
    this.above = spacer();
    this.below = spacer();
    frame.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(frame);
  }

  get isLong() {
    return this.count > ALL;
  }

  /** Draw a new set of rows, and keep the scroll position. */
  show(count) {
    // Reading the scroll position makes the browser lay out the page; without rows it is not needed.
    const top = this.count ? this.frame.scrollTop : 0;
    this.count = count;
    this.heights = new Float64Array(count).fill(this.usualHeight ?? USUAL_HEIGHT);
    this.drawn.clear();
    this.frame.classList.toggle("is-long", this.isLong);
    this.body.replaceChildren(this.above, this.below);
    this.draw(top);
    if (top && this.frame.scrollTop !== top) this.frame.scrollTop = top;
  }

  /** Replace the elements of a row, for example when it expands. */
  replace(position) {
    const before = this.drawn.get(position);
    if (!before) return;
    const fresh = this.rowAt(position);
    before[0].before(...fresh);
    for (const element of before) element.remove();
    this.drawn.set(position, fresh);
    this.measure();
  }

  /** Draw a row and scroll to it; return its first element. */
  reveal(position) {
    if (!this.drawn.has(position)) {
      this.frame.scrollTop = this.offset(position) - this.frame.clientHeight / 2;
      this.draw();
    }
    const [line] = this.drawn.get(position);
    line.scrollIntoView({ block: "nearest" });
    return line;
  }

  later() {
    if (!this.isLong || this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  draw(top = this.frame.scrollTop) {
    const [first, last] = this.isLong ? this.range(top) : [0, this.count];
    this.removeOutside(first, last);
    let before = this.above;
    for (let position = first; position < last; position += 1) {
      const elements = this.drawn.get(position) ?? this.rowAt(position);
      if (!this.drawn.has(position)) before.after(...elements);
      this.drawn.set(position, elements);
      before = elements.at(-1);
    }
    resize(this.above, this.offset(first));
    resize(this.below, this.offset(this.count) - this.offset(last));
    if (this.isLong) this.measure();
  }

  /** Remove the rows outside of the range; move the focus to the table if one of them has it. */
  removeOutside(first, last) {
    for (const [position, elements] of this.drawn) {
      if (position >= first && position < last) continue;
      if (elements.some((one) => one.contains(document.activeElement))) this.frame.focus({ preventScroll: true });
      for (const element of elements) element.remove();
      this.drawn.delete(position);
    }
  }

  range(top) {
    let y = 0;
    let first = 0;
    while (first < this.count - 1 && y + this.heights[first] < top) y += this.heights[first++];
    let last = first;
    const bottom = top + (this.frame.clientHeight || USUAL_FRAME);
    while (last < this.count && y < bottom) y += this.heights[last++];
    return [Math.max(0, first - AROUND), Math.min(this.count, last + AROUND)];
  }

  offset(position) {
    let y = 0;
    for (let place = 0; place < position; place += 1) y += this.heights[place];
    return y;
  }

  /** Measure the drawn rows, and correct the scroll position if rows above have another height than estimated. */
  measure() {
    if (!this.isLong || !this.drawn.size) return;
    const first = Math.min(...this.drawn.keys());
    let moved = 0;
    let y = this.offset(first);
    const top = this.frame.scrollTop;
    for (const [position, elements] of [...this.drawn].sort(([one], [other]) => one - other)) {
      const height = elements.reduce((sum, one) => sum + one.getBoundingClientRect().height, 0);
      y += this.heights[position];
      if (y < top) moved += height - this.heights[position];
      this.heights[position] = height;
      if (elements.length === 1) this.usualHeight = height;
    }
    if (Math.abs(moved) >= 1) this.frame.scrollTop = top + moved;
  }
}

function spacer() {
  const cell = document.createElement("td");
  const row = document.createElement("tr");
  row.className = "spacer";
  row.setAttribute("aria-hidden", "true");
  row.append(cell);
  return row;
}

function resize(row, height) {
  row.hidden = height < 1;
  row.firstChild.style.setProperty("height", `${height}px`);
}
