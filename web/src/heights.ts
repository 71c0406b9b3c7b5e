// Heights of many rows, most of them never seen. Always true: a row that was not measured has the estimate; finding a row by its
// place and a place by its row cost the logarithm of the number of rows (a Fenwick tree over the differences from the estimate).

export class Heights {
  private tree: Float64Array;
  private known: Float32Array;

  constructor(readonly count: number, readonly estimate: number) {
    this.tree = new Float64Array(count + 1);
    this.known = new Float32Array(count).fill(Number.NaN);
  }

  get total(): number {
    return this.top(this.count);
  }

  height(row: number): number {
    const known = this.known[row];
    return known === undefined || Number.isNaN(known) ? this.estimate : known;
  }

  /** True when it changed anything. */
  measure(row: number, height: number): boolean {
    if (row < 0 || row >= this.count) return false;
    const change = height - this.height(row);
    if (Math.abs(change) < 0.5) return false;
    this.known[row] = height;
    for (let i = row + 1; i <= this.count; i += i & -i) this.tree[i]! += change;
    return true;
  }

  /** Where a row begins. */
  top(row: number): number {
    let sum = row * this.estimate;
    for (let i = row; i > 0; i -= i & -i) sum += this.tree[i]!;
    return sum;
  }

  /** The row that covers a place; the first or last one beyond the ends. */
  at(y: number): number {
    let row = 0;
    let left = y;
    for (let step = 1 << Math.floor(Math.log2(Math.max(1, this.count))); step > 0; step >>= 1) {
      const next = row + step;
      if (next > this.count) continue;
      const span = this.tree[next]! + step * this.estimate;
      if (span <= left) {
        row = next;
        left -= span;
      }
    }
    return Math.max(0, Math.min(this.count - 1, row));
  }
}

/** The rows to draw, `beyond` pixels more on each side; `to` is one past the last. */
export function visible(heights: Heights, top: number, view: number, beyond: number): { from: number; to: number } {
  if (!heights.count) return { from: 0, to: 0 };
  return { from: heights.at(Math.max(0, top - beyond)), to: heights.at(top + view + beyond) + 1 };
}

/** Browsers cut elements taller than some ten million pixels: beyond this, the scroll bar is scaled. */
export const TALLEST = 8_000_000;

/** Place in the rows of a place of the scroll bar, and back. */
export function unscaled(scrollTop: number, total: number, view: number): number {
  return total <= TALLEST ? scrollTop : (scrollTop * (total - view)) / (TALLEST - view);
}

export function scaled(top: number, total: number, view: number): number {
  return total <= TALLEST ? top : (top * (TALLEST - view)) / (total - view);
}
