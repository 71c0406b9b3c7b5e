// The whole trace in one strip above the lanes. Always true: it shows everything whatever is zoomed; its window is what the
// lanes show.
import { overview } from "./bins";
import type { TimeMap } from "./gaps";
import type { Looks } from "./looks";
import type { Binned } from "./model";
import { stripes } from "./draw";
import { fit, type View } from "./view";

export const MINIMAP = 36;

export class Minimap {
  private heights: Float32Array | null = null;
  private made: { bins: unknown; width: number } | null = null;

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** `marks`: places of alerts, in shown seconds. */
  draw(
    looks: Looks, map: TimeMap, found: Binned | null, view: View, marks: readonly number[], width: number, scale: number,
  ): void {
    const ctx = this.canvas.getContext("2d")!;
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.fillStyle = looks.band;
    ctx.fillRect(0, 0, width, MINIMAP);
    const whole = fit({ length: map.length, lanes: 0, height: 0 });
    const perSecond = width / (whole.s1 - whole.s0);
    for (const gap of map.breaks) {
      ctx.fillStyle = stripes(ctx, looks.line, 6);
      ctx.fillRect((gap.at - whole.s0) * perSecond, 0, gap.width * perSecond, MINIMAP);
    }
    this.drawBusy(ctx, looks, map, found, width, whole.s0, perSecond);
    ctx.fillStyle = looks.text;
    for (const s of marks) {
      const x = (s - whole.s0) * perSecond;
      ctx.beginPath();
      ctx.moveTo(x - 4, 0);
      ctx.lineTo(x + 4, 0);
      ctx.lineTo(x, 6);
      ctx.fill();
    }
    this.drawWindow(ctx, looks, (view.s0 - whole.s0) * perSecond, (view.s1 - whole.s0) * perSecond, width);
  }

  private drawBusy(
    ctx: CanvasRenderingContext2D, looks: Looks, map: TimeMap, found: Binned | null, width: number, s0: number, perSecond: number,
  ): void {
    const pixels = Math.floor(width);
    if (!found || pixels < 1) return;
    if (this.made?.bins !== found.bins || this.made.width !== pixels) {
      const shown = (x: number) => s0 + x / perSecond;
      this.heights = overview(found.bins, pixels, found.bins.isShown ? shown : (x) => map.unfold(shown(x)));
      this.made = { bins: found.bins, width: pixels };
    }
    ctx.fillStyle = looks.quiet;
    const room = MINIMAP - 8;
    ctx.beginPath();
    for (let x = 0; x < pixels; x++) {
      const tall = this.heights![x]! * room;
      if (tall > 0) ctx.rect(x, MINIMAP - Math.max(1, tall), 1, Math.max(1, tall));
    }
    ctx.fill();
  }

  private drawWindow(ctx: CanvasRenderingContext2D, looks: Looks, left: number, right: number, width: number): void {
    ctx.globalAlpha = 0.6;
    ctx.fillStyle = looks.ground;
    ctx.fillRect(0, 0, Math.max(0, left), MINIMAP);
    ctx.fillRect(right, 0, Math.max(0, width - right), MINIMAP);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = looks.text;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(Math.max(0.75, left), 0.75, Math.min(width - 1.5, Math.max(3, right - Math.max(0, left))), MINIMAP - 1.5);
  }
}
