// Lanes as pixels: per lane and slice of time, the class that took most of it and how busy it was. Always true: five levels,
// each half as fine as the next; a cell is density * 256 + class; density 0 means that nothing happened, and whatever happened
// has at least `FAINT`.
import type { LaneIndex, Placed } from "./events";

export const LEVELS = 5;
export const FINEST = 8192;
export const FAINT = 56;
/** So many rows of bins are built at the finest size; with more, memory counts more than detail. */
const MANY_LANES = 2000;

export interface Level {
  bins: number;
  /** lanes x bins */
  cells: Uint16Array;
}

export interface LaneBins {
  lanes: number;
  start: number;
  end: number;
  /** Whether start, end and the cells are in shown time (built here) or in real time (the server's). */
  isShown: boolean;
  /** Coarse to fine. */
  levels: Level[];
}

export interface Work {
  index: LaneIndex;
  placed: Placed;
  /** Class of each event, and how many classes there are. */
  classes: Uint8Array;
  count: number;
  /** Classes below this one show wherever they are at all: what a filter found must not drown. */
  preferred: number;
  /** Most agents at a time per lane: what a full lane would be. */
  agents: readonly number[];
  length: number;
}

/** Sums of one lane at one level; only bins that were touched are looked at again. */
interface Sums {
  bins: number;
  busy: Float32Array;
  all: Float32Array;
  touched: Int32Array;
  n: number;
}

/** Builds lane by lane; stops after each, so that a caller can give the page its turn. */
export function* binSteps(work: Work): Generator<void, LaneBins> {
  const lanes = work.agents.length;
  const finest = lanes > MANY_LANES ? FINEST / 4 : FINEST;
  const sizes = Array.from({ length: LEVELS }, (_, k) => finest >> (LEVELS - 1 - k));
  const levels = sizes.map((bins) => ({ bins, cells: new Uint16Array(lanes * bins) }));
  const sums = sizes.map((bins): Sums => (
    { bins, busy: new Float32Array(bins * work.count), all: new Float32Array(bins), touched: new Int32Array(bins), n: 0 }));
  for (let lane = 0; lane < lanes; lane++) {
    if (work.index.first[lane] === work.index.first[lane + 1]) continue;
    addLane(work, lane, sums[LEVELS - 1]!);
    for (let k = LEVELS - 1; k >= 0; k--) {
      const { bins, cells } = levels[k]!;
      writeCells(work, sums[k]!, cells, lane, work.length / bins * Math.max(1, work.agents[lane]!));
      if (k > 0) halve(sums[k]!, sums[k - 1]!, work.count);
      clear(sums[k]!, work.count);
    }
    yield;
  }
  return { lanes, start: 0, end: work.length, isShown: true, levels };
}

/** Builds in slices of a few milliseconds; null when it was called off. */
export async function buildBinsInSlices(work: Work, isWanted: () => boolean, budgetMs: number): Promise<LaneBins | null> {
  const steps = binSteps(work);
  for (;;) {
    const until = performance.now() + budgetMs;
    do {
      const { done, value } = steps.next();
      if (done) return value;
    } while (performance.now() < until);
    await new Promise((resolve) => setTimeout(resolve));
    if (!isWanted()) return null;
  }
}

function add(sums: Sums, count: number, bin: number, cls: number, seconds: number): void {
  if (seconds <= 0) return;
  if (sums.all[bin] === 0) sums.touched[sums.n++] = bin;
  sums.all[bin]! += seconds;
  sums.busy[bin * count + cls]! += seconds;
}

/** Seconds of each class in each of the finest bins. An event without length counts as a sixth of a bin. */
function addLane(work: Work, lane: number, sums: Sums): void {
  const { index, placed, classes, count } = work;
  const { bins } = sums;
  const perBin = work.length / bins;
  for (let k = index.first[lane]!; k < index.first[lane + 1]!; k++) {
    const row = index.order[k]!;
    const from = Math.max(0, Math.min(placed.from[row]! / perBin, bins - 1 / 6));
    const to = Math.min(Math.max(placed.to[row]! / perBin, from + 1 / 6), bins);
    for (let b = Math.floor(from); b < to; b++) {
      add(sums, count, b, classes[row]!, (Math.min(to, b + 1) - Math.max(from, b)) * perBin);
    }
  }
}

function writeCells(work: Work, sums: Sums, cells: Uint16Array, lane: number, full: number): void {
  for (let i = 0; i < sums.n; i++) {
    const b = sums.touched[i]!;
    const density = Math.max(FAINT, Math.min(255, Math.round(255 * Math.sqrt(sums.all[b]! / full))));
    cells[lane * sums.bins + b] = density * 256 + strongest(work, sums.busy, b * work.count);
  }
}

function strongest(work: Work, busy: Float32Array, at: number): number {
  let best = 0;
  let most = 0;
  for (let c = 0; c < work.count; c++) {
    if (c === work.preferred && most > 0) break;
    if (busy[at + c]! > most) [most, best] = [busy[at + c]!, c];
  }
  return best;
}

function halve(fine: Sums, coarse: Sums, count: number): void {
  for (let i = 0; i < fine.n; i++) {
    const b = fine.touched[i]!;
    for (let c = 0; c < count; c++) add(coarse, count, b >> 1, c, fine.busy[b * count + c]!);
  }
}

function clear(sums: Sums, count: number): void {
  for (let i = 0; i < sums.n; i++) {
    const b = sums.touched[i]!;
    sums.all[b] = 0;
    sums.busy.fill(0, b * count, (b + 1) * count);
  }
  sums.n = 0;
}

/** Cells from the server's bytes (class, plain share), made like ours: held against the lane's busiest, and the root of that. */
export function brightened(data: Uint8Array, lanes: number): Uint16Array {
  const out = new Uint16Array(data.length / 2);
  const size = out.length / Math.max(1, lanes);
  for (let lane = 0; lane < lanes; lane++) {
    const [from, to] = [lane * size, (lane + 1) * size];
    let most = 0;
    for (let at = from; at < to; at++) most = Math.max(most, data[2 * at + 1]!);
    const bright = Uint8Array.from({ length: most + 1 }, (_, d) => Math.max(FAINT, Math.round(255 * Math.sqrt(d / most))));
    for (let at = from; at < to; at++) if (data[2 * at + 1]! > 0) out[at] = bright[data[2 * at + 1]!]! * 256 + data[2 * at]!;
  }
  return out;
}

/** The coarsest level that still has a bin for every pixel. */
export function levelFor(bins: LaneBins, u0: number, u1: number, pixels: number): Level {
  const share = Math.max((u1 - u0) / (bins.end - bins.start), 1e-12);
  return bins.levels.find((level) => level.bins * share >= pixels) ?? bins.levels[bins.levels.length - 1]!;
}

/** For each column of pixels, its first bin and the one after its last; `uAt` is the time at a pixel, in the bins' own time. */
export function columnsOf(
  bins: LaneBins, level: Level, pixels: number, uAt: (x: number) => number,
): { low: Int32Array; high: Int32Array } {
  const low = new Int32Array(pixels);
  const high = new Int32Array(pixels);
  const perSecond = level.bins / (bins.end - bins.start);
  let left = (uAt(0) - bins.start) * perSecond;
  for (let x = 0; x < pixels; x++) {
    const right = (uAt(x + 1) - bins.start) * perSecond;
    low[x] = Math.max(0, Math.floor(left));
    high[x] = Math.min(level.bins, Math.max(Math.ceil(right - 1e-9), Math.floor(left) + 1));
    left = right;
  }
  return { low, high };
}

/** One lane as one row of pixels. `colours` is by cell. Of several bins in a pixel the busiest shows: the greatest cell. */
export function paintRow(
  level: Level, lane: number, low: Int32Array, high: Int32Array, colours: Uint32Array, out: Uint32Array, at: number,
): void {
  const { cells } = level;
  const base = lane * level.bins;
  for (let x = 0; x < low.length; x++) {
    let most = 0;
    const end = base + high[x]!;
    for (let b = base + low[x]!; b < end; b++) if (cells[b]! > most) most = cells[b]!;
    out[at + x] = colours[most]!;
  }
}

/** How busy all lanes are together, for the overview: one value 0..1 per pixel. */
export function overview(bins: LaneBins, pixels: number, uAt: (x: number) => number): Float32Array {
  const level = levelFor(bins, bins.start, bins.end, pixels);
  const { low, high } = columnsOf(bins, level, pixels, uAt);
  const sums = new Float32Array(pixels);
  for (let lane = 0; lane < bins.lanes; lane++) {
    const base = lane * level.bins;
    for (let x = 0; x < pixels; x++) {
      let most = 0;
      for (let b = base + low[x]!; b < base + high[x]!; b++) if (level.cells[b]! > most) most = level.cells[b]!;
      sums[x]! += most >> 8;
    }
  }
  const peak = sums.reduce((a, b) => Math.max(a, b), 0) || 1;
  return sums.map((value) => value / peak);
}
