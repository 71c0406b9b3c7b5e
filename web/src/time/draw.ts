// The lanes on a canvas. Always true: cost is that of pixels; a bar's glyph says its kind, so its hue says nothing alone; taint
// is a hatch, the critical path an outline, waiting a thin line, a break a striped band.
import { glyphOf, TAINT_GLYPH } from "../palette";
import { span } from "../numbers";
import { FLAGS } from "../shapes.gen";
import { columnsOf, levelFor, paintRow } from "./bins";
import type { TimeMap } from "./gaps";
import type { Looks } from "./looks";
import { binRow, type Binned } from "./model";
import { glyphRoom, lanesInSight, MARGIN, type Plan, type Scene } from "./plan";
import type { Lanes } from "./lanes";
import { tickLabel, ticks, tickStep, type View } from "./view";

export const RULER = 22;
const GLYPH = 11;
const GLYPHS_MOST = 320;
const LABELS_MOST = 90;
const FONT = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const GLYPH_FONT = `${GLYPH}px "DejaVu Sans", "Segoe UI Symbol", "Noto Sans Symbols 2", "Apple Symbols", sans-serif`;

/** What the lanes are drawn from. */
export interface Ground {
  ctx: CanvasRenderingContext2D;
  looks: Looks;
  view: View;
  map: TimeMap;
  lanes: Lanes;
  width: number;
  /** Of the lanes, without the ruler. */
  height: number;
  rowHeight: number;
}

/** Small pictures of glyphs: drawing text anew each frame costs more than everything else. */
export class Glyphs {
  private readonly made = new Map<string, ImageBitmap>();

  constructor(private readonly scale: number) {}

  draw(ctx: CanvasRenderingContext2D, glyph: string, colour: string, x: number, y: number): void {
    const key = glyph + colour;
    let picture = this.made.get(key);
    if (!picture) this.made.set(key, (picture = this.make(glyph, colour)));
    ctx.drawImage(picture, x, y, GLYPH + 3, GLYPH + 3);
  }

  private make(glyph: string, colour: string): ImageBitmap {
    const size = Math.ceil((GLYPH + 3) * this.scale);
    const canvas = new OffscreenCanvas(size, size);
    const ctx = canvas.getContext("2d")!;
    ctx.scale(this.scale, this.scale);
    ctx.font = GLYPH_FONT;
    ctx.fillStyle = colour;
    ctx.textBaseline = "middle";
    ctx.textAlign = "center";
    ctx.fillText(`${glyph}\uFE0E`, (GLYPH + 3) / 2, (GLYPH + 3) / 2 + 0.5);
    return canvas.transferToImageBitmap();
  }
}

/** Clears, and draws what lies under the events: lines between lanes, breaks, and thin lines while an agent lives and waits. */
export function drawGround(at: Ground, lives: { from: Float64Array; to: Float64Array } | null): void {
  const { ctx, looks, view, width, height, rowHeight } = at;
  ctx.fillStyle = looks.ground;
  ctx.fillRect(0, 0, width, height);
  const [first, end] = lanesInSight(view, height, rowHeight, at.lanes.list.length);
  if (rowHeight >= 8) {
    ctx.fillStyle = looks.band;
    for (let lane = first + (first & 1); lane < end; lane += 2) ctx.fillRect(0, lane * rowHeight - view.top, width, rowHeight);
  }
  drawBreaks(at);
  if (!lives || rowHeight < 8) return;
  ctx.fillStyle = looks.line;
  const perSecond = width / (view.s1 - view.s0);
  for (let lane = first; lane < end; lane++) {
    const [from, to] = life(at.lanes.list[lane]!.agents, lives);
    const x = Math.max(0, (from - view.s0) * perSecond);
    const right = Math.min(width, (to - view.s0) * perSecond);
    if (right > x) ctx.fillRect(x, Math.round(lane * rowHeight - view.top + rowHeight / 2 - 1), right - x, 2);
  }
}

function life(agents: readonly number[], lives: { from: Float64Array; to: Float64Array }): [number, number] {
  let from = Infinity;
  let to = -Infinity;
  for (const agent of agents) {
    if (lives.from[agent]! < from) from = lives.from[agent]!;
    if (lives.to[agent]! > to) to = lives.to[agent]!;
  }
  return [from, to];
}

function drawBreaks({ ctx, looks, view, map, width, height }: Ground): void {
  const perSecond = width / (view.s1 - view.s0);
  for (const gap of map.breaks) {
    const x = (gap.at - view.s0) * perSecond;
    const wide = gap.width * perSecond;
    if (x > width || x + wide < 0) continue;
    ctx.fillStyle = stripes(ctx, looks.line, 6);
    ctx.fillRect(x, 0, Math.max(2, wide), height);
  }
}

const patterns = new Map<string, CanvasPattern>();

/** Diagonal lines. */
export function stripes(ctx: CanvasRenderingContext2D, colour: string, size: number): CanvasPattern | string {
  const key = `${colour} ${size}`;
  const known = patterns.get(key);
  if (known) return known;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const at = canvas.getContext("2d")!;
  at.strokeStyle = colour;
  at.lineWidth = 1;
  for (const shift of [-size, 0, size]) {
    at.moveTo(shift - 1, size + 1);
    at.lineTo(shift + size + 1, -1);
  }
  at.stroke();
  const made = ctx.createPattern(canvas, "repeat");
  if (made) patterns.set(key, made);
  return made ?? colour;
}

/** Exact bars with their marks. `words` names an event for the label inside a wide bar. */
export function drawBars(
  at: Ground, plan: Plan, flags: Uint16Array, glyphs: Glyphs, glyphsOf: (row: number, cls: number) => string,
  words: (row: number) => string,
): void {
  const { ctx, looks } = at;
  for (let cls = 0; cls < looks.colours.length; cls++) {
    let isSet = false;
    for (let k = 0; k < plan.n; k++) {
      if (plan.cls[k] !== cls) continue;
      if (!isSet) ctx.fillStyle = looks.colours[cls]!;
      isSet = true;
      ctx.fillRect(plan.x[k]!, plan.y[k]!, plan.w[k]!, plan.h[k]!);
    }
  }
  drawHatch(at, plan, flags);
  drawOutlines(at, plan, flags);
  drawGlyphs(at, plan, flags, glyphs, glyphsOf, words);
}

function drawHatch({ ctx, looks }: Ground, plan: Plan, flags: Uint16Array): void {
  ctx.fillStyle = stripes(ctx, looks.ground, 5);
  for (let k = 0; k < plan.n; k++) {
    if (!(flags[plan.row[k]!]! & FLAGS.tainted)) continue;
    if (plan.w[k]! >= 5 && plan.h[k]! >= 5) ctx.fillRect(plan.x[k]!, plan.y[k]!, plan.w[k]!, plan.h[k]!);
  }
}

/** The critical path: lines above and below, so that short events in a row read as one band; sides where there is room. */
function drawOutlines({ ctx, looks }: Ground, plan: Plan, flags: Uint16Array): void {
  ctx.fillStyle = looks.text;
  for (let k = 0; k < plan.n; k++) {
    if (!(flags[plan.row[k]!]! & FLAGS.on_path)) continue;
    const [x, y, w, h] = [plan.x[k]!, plan.y[k]!, plan.w[k]!, plan.h[k]!];
    ctx.fillRect(x, y + h - 1, w + 0.5, h >= 8 ? 2 : 1);
    if (h < 8) continue;
    ctx.fillRect(x, y - 1, w + 0.5, 2);
    if (w < 10) continue;
    ctx.fillRect(x, y, 1.5, h);
    ctx.fillRect(x + w - 1.5, y, 1.5, h);
  }
}

function drawGlyphs(
  { ctx, looks, width }: Ground, plan: Plan, flags: Uint16Array, glyphs: Glyphs, glyphsOf: (row: number, cls: number) => string,
  words: (row: number) => string,
): void {
  let labels = 0;
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const k of glyphRoom(plan, GLYPH, GLYPHS_MOST)) {
    const [row, cls, wide] = [plan.row[k]!, plan.cls[k]!, plan.w[k]!];
    const x = Math.max(plan.x[k]!, 0);
    const y = plan.y[k]! + plan.h[k]! / 2;
    const glyph = glyphsOf(row, cls);
    if (wide < GLYPH + 4) {
      if (glyph) glyphs.draw(ctx, glyph, looks.colours[cls]!, x + wide, y - (GLYPH + 3) / 2);
      continue;
    }
    const seen = Math.min(plan.x[k]! + wide, width) - x;
    const before = glyph ? GLYPH + 5 : 5;
    const room = Math.floor((seen - before - 3) / 6.4);
    const text = room >= 4 && ++labels <= LABELS_MOST ? cut(words(row), room) : "";
    if (seen < GLYPH + 4 || (!glyph && !text)) continue;
    if (flags[row]! & FLAGS.tainted) {
      // Letters on a hatch cannot be read: they get a piece of plain colour.
      ctx.fillStyle = looks.colours[cls]!;
      ctx.fillRect(x + 2, y - 7, Math.min(seen - 4, before - 3 + text.length * 6.6), 14);
    }
    if (glyph) glyphs.draw(ctx, glyph, looks.inks[cls]!, x + 1, y - (GLYPH + 3) / 2);
    if (!text) continue;
    ctx.fillStyle = looks.inks[cls]!;
    ctx.fillText(text, x + before, y + 0.5);
  }
}

const cut = (text: string, room: number) => (text.length <= room ? text : `${text.slice(0, room - 1)}…`);

/** The picture of strips: one row of pixels per lane, drawn at once and stretched to the lanes. */
export class Strips {
  private readonly canvas = document.createElement("canvas");
  private image: ImageData | null = null;

  draw(at: Ground, found: Binned, looks: Looks): void {
    const { ctx, view, map, width, height, rowHeight, lanes } = at;
    const [first, end] = lanesInSight(view, height, rowHeight, lanes.list.length);
    const rows = end - first;
    const pixels = Math.floor(width);
    if (rows <= 0 || pixels <= 0) return;
    const out = this.room(pixels, rows);
    const perPixel = (view.s1 - view.s0) / width;
    const shown = (x: number) => view.s0 + x * perPixel;
    const uAt = found.bins.isShown ? shown : (x: number) => map.unfold(shown(x));
    const level = levelFor(found.bins, uAt(0), uAt(pixels), pixels);
    const { low, high } = columnsOf(found.bins, level, pixels, uAt);
    for (let lane = first; lane < end; lane++) {
      const row = binRow(found, lanes, lane);
      if (row < 0) out.fill(0, (lane - first) * pixels, (lane - first + 1) * pixels);
      else paintRow(level, row, low, high, looks.pixels, out, (lane - first) * pixels);
    }
    const inner = this.canvas.getContext("2d")!;
    inner.putImageData(this.image!, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.canvas, 0, 0, pixels, rows, 0, first * rowHeight - view.top, pixels, rows * rowHeight);
    ctx.imageSmoothingEnabled = true;
    this.part(at, first, end);
  }

  private room(width: number, height: number): Uint32Array {
    if (this.image?.width !== width || this.image.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = new ImageData(width, height);
    }
    return new Uint32Array(this.image.data.buffer);
  }

  /** Ground between lanes that are tall enough to be parted. */
  private part({ ctx, looks, view, width, rowHeight }: Ground, first: number, end: number): void {
    if (rowHeight < 6) return;
    const margin = rowHeight >= 10 ? MARGIN : 1;
    ctx.fillStyle = looks.ground;
    for (let lane = first; lane <= end; lane++) ctx.fillRect(0, lane * rowHeight - view.top - margin, width, 2 * margin);
  }
}

/** Lines from one event of the critical path to the next, where it changes lanes. */
export function drawPath(at: Ground, scene: Scene, path: Uint32Array): void {
  const { ctx, looks, view, width, rowHeight } = at;
  const { placed, agent, lanes } = scene;
  const perSecond = width / (view.s1 - view.s0);
  ctx.strokeStyle = looks.text;
  ctx.lineWidth = 1;
  ctx.beginPath();
  let lastX = -1e9;
  for (let k = 1; k < path.length; k++) {
    const [a, b] = [path[k - 1]!, path[k]!];
    if (placed.from[b]! < view.s0) continue;
    if (placed.from[a]! > view.s1) break;
    const [up, down] = [lanes.ofAgent[agent[a]!]!, lanes.ofAgent[agent[b]!]!];
    if (up === down || up < 0 || down < 0) continue;
    const x = Math.round((placed.from[b]! - view.s0) * perSecond) + 0.5;
    if (x - lastX < 1) continue;
    lastX = x;
    ctx.moveTo(x, (up + 0.5) * rowHeight - view.top);
    ctx.lineTo(x, (down + 0.5) * rowHeight - view.top);
  }
  ctx.globalAlpha = 0.45;
  ctx.stroke();
  ctx.globalAlpha = 1;
}

/** Times along the top, and how long each break is. */
export function drawRuler({ ctx, looks, view, map, width }: Ground): void {
  ctx.fillStyle = looks.ground;
  ctx.fillRect(0, 0, width, RULER);
  ctx.fillStyle = looks.line;
  ctx.fillRect(0, RULER - 1, width, 1);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  const perSecond = width / (view.s1 - view.s0);
  const taken: [number, number][] = [];
  ctx.textAlign = "center";
  for (const gap of map.breaks) {
    const x = (gap.at + gap.width / 2 - view.s0) * perSecond;
    const text = gap.width * perSecond > 70 ? `${span(gap.to - gap.from)} idle` : span(gap.to - gap.from);
    const half = text.length * 3.2 + 4;
    const isTaken = taken.some(([from, to]) => x - half < to && x + half > from);
    if (x < 0 || x > width || gap.width * perSecond < 12 || isTaken) continue;
    ctx.fillStyle = stripes(ctx, looks.line, 6);
    ctx.fillRect(x - (gap.width * perSecond) / 2, 0, gap.width * perSecond, RULER - 1);
    ctx.fillStyle = looks.ground;
    ctx.fillRect(x - half, 2, 2 * half, RULER - 5);
    ctx.fillStyle = looks.text;
    ctx.fillText(text, x, RULER / 2);
    taken.push([x - half, x + half]);
  }
  ctx.textAlign = "left";
  const step = tickStep(84 / perSecond);
  for (const { s, t } of ticks(map, view.s0, view.s1, step)) {
    const x = Math.round((s - view.s0) * perSecond);
    const text = tickLabel(t, step);
    const end = x + 8 + text.length * 6.4;
    if (end > width || taken.some(([from, to]) => x < to && end > from)) continue;
    ctx.fillStyle = looks.quiet;
    ctx.fillRect(x, RULER - 6, 1, 5);
    ctx.fillText(text, x + 4, RULER / 2);
    taken.push([x, end]);
  }
}

/** The glyph of an event on a scale: its kind, or the sign of its value where the scale has one. */
export function glyphOn(by: string, type: string, flags: number, cls: number, middle: number): string {
  if (by === "credit" || by === "reward") return cls === 0 ? "" : cls > middle ? "+" : cls < middle ? "−" : "0";
  if (by === "taint") return flags & FLAGS.tainted ? TAINT_GLYPH : "";
  if (flags & FLAGS.failed) return "✕";
  const glyph = glyphOf(type);
  return glyph === "█" ? "" : glyph;
}
