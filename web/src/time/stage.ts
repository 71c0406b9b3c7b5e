// The timeline's canvases and the view on them. Always true: a frame is drawn at most once per refresh and only when something
// changed; `settled` follows the view when it rests, so that nothing but drawing happens while it moves.
import { signal } from "@preact/signals";
import { ARM } from "./colour";
import { drawBars, drawGround, drawPath, drawRuler, glyphOn, Glyphs, RULER, Strips, type Ground } from "./draw";
import { nearest } from "./events";
import { isWhole } from "./large";
import { looksOf, type Looks } from "./looks";
import { Minimap, MINIMAP } from "./minimap";
import * as model from "./model";
import { drawOverlay } from "./overlay";
import { emptyPlan, hitPlan, lanesInSight, planExact, type Scene } from "./plan";
import { colourBy, columns, hover, marked, rowOf, selectedAgent, selectedEvent, shade, suspects, trace, type ColourBy } from "../state";
import { clamp, fit, reveal, type Extent, type View } from "./view";

export type Rows = "roomy" | "dense" | "all";
const ROOMY = 24;
/** Suspects that are marked. */
const MARKED = 5;
const DENSE = 12;
/** Few lanes take the room there is, up to this; more where folded ones have several rows inside. */
const TALLEST = 44;
const TALLEST_FOLDED = 104;
/** In lanes less tall than this a bar cannot be told from a strip, which costs less. */
const THIN = 4;
const REST_MS = 140;

export interface Canvases {
  base: HTMLCanvasElement;
  over: HTMLCanvasElement;
  mini: HTMLCanvasElement;
  scroller: HTMLElement;
}

export class Stage {
  view: View = { s0: 0, s1: 1, top: 0 };
  readonly rows = signal<Rows>("roomy");
  width = 0;
  height = 0;
  /** Where the pointer is, in pixels of the lanes. */
  pointer = { x: -1, y: -1 };
  /** The view when it rests; null before the first frame. */
  readonly settled = signal<View | null>(null);
  /** Lanes in sight, for their names. */
  readonly sight = signal<readonly [number, number]>([0, 0]);
  /** Height of a lane as drawn last. */
  readonly tall = signal(ROOMY);
  readonly isExact = signal(true);
  private readonly plan = emptyPlan();
  private readonly strips = new Strips();
  private readonly minimap: Minimap;
  private glyphs = new Glyphs(1);
  private scale = 1;
  private readonly looks = new Map<string, Looks>();
  private frame = 0;
  private timer = 0;
  private isStale = { base: true, over: true };

  constructor(private readonly canvases: Canvases) {
    this.minimap = new Minimap(canvases.mini);
  }

  get rowHeight(): number {
    const count = Math.max(1, model.lanes.value?.list.length ?? 1);
    const each = this.height / count;
    switch (this.rows.value) {
      case "dense": return DENSE;
      case "roomy": {
        const isFolded = model.lanes.value?.list.some((lane) => lane.tracks > 2) ?? false;
        return Math.max(ROOMY, Math.min(isFolded ? TALLEST_FOLDED : TALLEST, Math.floor(each)));
      }
      default: return each >= ROOMY ? ROOMY : Math.max(1, Math.floor(each));
    }
  }

  get extent(): Extent {
    const count = model.lanes.value?.list.length ?? 0;
    return { length: model.map.value?.length ?? 1, lanes: count * this.rowHeight, height: this.height };
  }

  /** Takes the size of its place. */
  resize(width: number, height: number): void {
    const scale = globalThis.devicePixelRatio || 1;
    [this.width, this.height] = [Math.max(1, width), Math.max(1, height - RULER)];
    if (scale !== this.scale) this.glyphs = new Glyphs(scale);
    this.scale = scale;
    const { base, over, mini } = this.canvases;
    for (const canvas of [base, over]) {
      [canvas.width, canvas.height] = [Math.round(this.width * scale), Math.round(height * scale)];
    }
    [mini.width, mini.height] = [Math.round(this.width * scale), Math.round(MINIMAP * scale)];
    this.changed();
  }

  /** Shows another part; scrolls the names along. */
  look(next: View): void {
    this.view = clamp(next, this.extent);
    const { scroller } = this.canvases;
    if (Math.abs(scroller.scrollTop - this.view.top) >= 1) scroller.scrollTop = this.view.top;
    this.changed();
  }

  fitAll(): void {
    this.look({ ...fit(this.extent), top: this.view.top });
  }

  changed(): void {
    this.isStale.base = true;
    this.request();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => { this.settled.value = this.view; }, REST_MS);
  }

  pointed(): void {
    this.isStale.over = true;
    this.request();
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
  }

  private request(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  private looksFor(by: ColourBy): Looks {
    const key = `${by} ${shade.value}`;
    let found = this.looks.get(key);
    if (!found) this.looks.set(key, (found = looksOf(by, shade.value)));
    return found;
  }

  private ground(canvas: HTMLCanvasElement): Ground | null {
    const [map, lanes] = [model.map.value, model.lanes.value];
    if (!map || !lanes) return null;
    const ctx = canvas.getContext("2d")!;
    ctx.setTransform(this.scale, 0, 0, this.scale, 0, RULER * this.scale);
    const { view, width, height, rowHeight } = this;
    return { ctx, looks: this.looksFor(colourBy.value), view, map, lanes, width, height, rowHeight };
  }

  scene(): Scene | null {
    const [lanes, index, placed] = [model.lanes.value, model.index.value, model.placed.value];
    const [classes, at] = [model.classes.value, columns.value];
    if (!lanes || !index || !placed || !classes || !at) return null;
    const { view, width, height, rowHeight } = this;
    return { lanes, index, placed, agent: at.agent, classes, view, width, height, rowHeight };
  }

  private draw(): void {
    this.frame = 0;
    if (this.isStale.base) this.drawBase();
    this.isStale = { base: false, over: false };
    this.drawOver();
  }

  private drawBase(): void {
    this.view = clamp(this.view, this.extent);
    const at = this.ground(this.canvases.base);
    const { ctx } = at ?? {};
    if (!at || !ctx) return;
    drawGround(at, model.lives.value);
    const scene = this.scene();
    const isAll = isWhole(at.map.unfold(this.view.s0), at.map.unfold(this.view.s1));
    const isThin = at.rowHeight < THIN && this.usable(at) !== null;
    const isExact = scene !== null && isAll && !isThin && planExact(scene, this.plan);
    if (isExact) this.drawExact(at, scene);
    else this.drawStrips(at, scene);
    ctx.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    drawRuler(at);
    const marks = this.alerts(at);
    this.minimap.draw(at.looks, at.map, model.binned.value, this.view, marks, this.width, this.scale);
    const [first, end] = lanesInSight(this.view, this.height, this.rowHeight, at.lanes.list.length);
    const [a, b] = this.sight.peek();
    if (first !== a || end !== b) this.sight.value = [first, end];
    this.canvases.base.dataset["drawn"] = isExact ? "exact" : model.binned.value ? "strips" : "";
    this.tall.value = this.rowHeight;
    this.isExact.value = isExact;
  }

  private drawExact(at: Ground, scene: Scene): void {
    const cols = columns.value!;
    const { types, tools } = trace.value!.about;
    const by = colourBy.value;
    const count = model.scale.value!.names.length;
    drawPath(at, scene, model.path.value);
    drawBars(at, this.plan, cols.flags, this.glyphs,
      (row, cls) => glyphOn(by, types[cols.type[row]!] ?? "", cols.flags[row]!, cls % count, 1 + ARM),
      (row) => tools[cols.tool[row]! - 1] ?? (types[cols.type[row]!] ?? "unknown").replaceAll("_", " "));
  }

  /** The bins, if they are of these lanes. */
  private usable(at: Ground): model.Binned | null {
    const found = model.binned.value;
    return found && (found.lanes === null || found.lanes === at.lanes) ? found : null;
  }

  private drawStrips(at: Ground, scene: Scene | null): void {
    const found = this.usable(at);
    this.plan.n = 0;
    if (!found) return;
    this.strips.draw(at, found, this.looksFor(found.by));
    if (scene && found.bins.isShown) drawPath(at, scene, model.path.value);
  }

  private alerts(at: Ground): number[] {
    const placed = model.placed.value;
    const found: number[] = [];
    for (const alert of trace.value?.about.alerts ?? []) {
      const row = rowOf(alert.events[0] ?? -1);
      if (row >= 0 && placed && found.length < 100) found.push(placed.from[row]!);
    }
    return at.map ? found : [];
  }

  private drawOver(): void {
    const at = this.ground(this.canvases.over);
    if (!at) return;
    const lanes = at.lanes;
    const range = marked.value;
    drawOverlay(at, this.scene(), this.isExact.peek() ? this.plan : null, columns.value?.flags ?? null, {
      selected: rowOf(selectedEvent.value), suspects: suspects.value.slice(0, MARKED).map(rowOf), hovered: rowOf(hover.value.event),
      lane: lanes.ofAgent[selectedAgent.value] ?? -1, hoverLane: lanes.ofAgent[hover.value.agent] ?? -1,
      marked: range ? [at.map.fold(range[0]), at.map.fold(range[1])] : null, x: this.pointer.x,
    }, performance.now() / 90 % 6);
  }

  /** Shown seconds at a pixel. */
  timeAt(x: number): number {
    return this.view.s0 + (x / this.width) * (this.view.s1 - this.view.s0);
  }

  laneAt(y: number): number {
    const lane = Math.floor((y + this.view.top) / this.rowHeight);
    return y >= 0 && lane < (model.lanes.value?.list.length ?? 0) ? lane : -1;
  }

  /** Row of the event at a point, -1 without: exactly, or in strips the nearest of the lane within a few pixels. */
  eventAt(x: number, y: number): number {
    if (this.isExact.peek()) return hitPlan(this.plan, x, y);
    const scene = this.scene();
    const lane = this.laneAt(y);
    if (!scene || lane < 0) return -1;
    const row = nearest(scene.index, scene.placed, lane, this.timeAt(x));
    if (row < 0) return -1;
    const perSecond = this.width / (this.view.s1 - this.view.s0);
    const s = this.timeAt(x);
    return Math.max(scene.placed.from[row]! - s, s - scene.placed.to[row]!) * perSecond <= 4 ? row : -1;
  }

  /** Brings an event into sight, moving as little as possible. */
  revealRow(row: number): void {
    const scene = this.scene();
    const lane = scene ? scene.lanes.ofAgent[scene.agent[row] ?? -1] ?? -1 : -1;
    if (!scene || lane < 0 || row < 0) return;
    const top = lane * this.rowHeight;
    this.look(reveal(this.view, this.extent, scene.placed.from[row]!, scene.placed.to[row]!, top, top + this.rowHeight));
  }
}
