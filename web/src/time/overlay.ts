// What moves with the pointer and the selection, on a canvas of its own above the lanes, so that pointing never draws the lanes
// again.
import { span } from "../numbers";
import { FLAGS } from "../shapes.gen";
import { RULER, type Ground } from "./draw";
import { rectOf, type Plan, type Scene } from "./plan";

export interface Pointed {
  selected: number;
  hovered: number;
  /** Suspects of the Blame panel, by rank; -1 where one is not at hand. */
  suspects: readonly number[];
  /** Lanes of the selected and the pointed agent, -1 without. */
  lane: number;
  hoverLane: number;
  /** Marked range in shown seconds. */
  marked: readonly [number, number] | null;
  /** Pixels, -1 when the pointer is elsewhere. */
  x: number;
}

export function drawOverlay(
  at: Ground, scene: Scene | null, plan: Plan | null, flags: Uint16Array | null, pointed: Pointed, phase: number,
): void {
  const { ctx, looks, width, height } = at;
  ctx.clearRect(0, -RULER, width, height + RULER);
  drawLane(at, pointed.hoverLane, 0.05);
  drawLane(at, pointed.lane, 0.1);
  if (pointed.marked) drawMarked(at, pointed.marked);
  if (pointed.x >= 0) {
    ctx.fillStyle = looks.quiet;
    ctx.fillRect(Math.round(pointed.x), -RULER, 1, height + RULER);
  }
  if (plan && flags) drawOpen(at, plan, flags, phase);
  if (scene) {
    outline(at, scene, pointed.hovered, 1.5);
    outline(at, scene, pointed.selected, 2.5);
    for (let i = pointed.suspects.length; i-- > 0;) drawSuspect(at, scene, pointed.suspects[i]!, i + 1);
  }
}

function drawLane({ ctx, looks, view, width, rowHeight }: Ground, lane: number, strength: number): void {
  if (lane < 0 || rowHeight < 3) return;
  ctx.globalAlpha = strength;
  ctx.fillStyle = looks.text;
  ctx.fillRect(0, lane * rowHeight - view.top, width, rowHeight);
  ctx.globalAlpha = 1;
}

function outline({ ctx, looks, height }: Ground, scene: Scene, row: number, thick: number): void {
  const rect = row >= 0 ? rectOf(scene, row) : null;
  if (!rect || rect.y + rect.h < 0 || rect.y > height) return;
  const half = thick / 2 + 1;
  ctx.strokeStyle = looks.ground;
  ctx.lineWidth = thick + 3;
  ctx.strokeRect(rect.x - half, rect.y - half, rect.w + 2 * half, rect.h + 2 * half);
  ctx.strokeStyle = looks.text;
  ctx.lineWidth = thick;
  ctx.strokeRect(rect.x - half, rect.y - half, rect.w + 2 * half, rect.h + 2 * half);
}

/** A suspect has its rank on a small flag above it. */
function drawSuspect({ ctx, looks, height }: Ground, scene: Scene, row: number, rank: number): void {
  const rect = row >= 0 ? rectOf(scene, row) : null;
  if (!rect || rect.y + rect.h < 0 || rect.y > height) return;
  const x = rect.x + Math.min(rect.w, 12) / 2;
  const y = Math.max(rect.y - 1, 6);
  ctx.fillStyle = looks.text;
  ctx.beginPath();
  ctx.arc(x, y, 7, 0, 2 * Math.PI);
  ctx.fill();
  ctx.strokeStyle = looks.text;
  ctx.lineWidth = 2;
  ctx.strokeRect(rect.x - 1, rect.y - 1, rect.w + 2, rect.h + 2);
  ctx.font = "700 10px system-ui, sans-serif";
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = looks.ground;
  ctx.fillText(String(rank), x, y + 0.5);
}

function drawMarked({ ctx, looks, view, width, height, map }: Ground, [from, to]: readonly [number, number]): void {
  const perSecond = width / (view.s1 - view.s0);
  const [left, right] = [(from - view.s0) * perSecond, (to - view.s0) * perSecond];
  ctx.globalAlpha = 0.09;
  ctx.fillStyle = looks.text;
  ctx.fillRect(left, 0, right - left, height);
  ctx.globalAlpha = 1;
  ctx.fillRect(left, -RULER, 1.5, height + RULER);
  ctx.fillRect(right - 1.5, -RULER, 1.5, height + RULER);
  const text = span(map.unfold(to) - map.unfold(from));
  const middle = (Math.max(0, left) + Math.min(width, right)) / 2;
  if (right - left < text.length * 7) return;
  ctx.font = "600 11px system-ui, sans-serif";
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = looks.text;
  ctx.fillRect(middle - text.length * 3.4 - 5, -RULER + 3, text.length * 6.8 + 10, RULER - 7);
  ctx.fillStyle = looks.ground;
  ctx.fillText(text, middle, -RULER / 2);
}

/** Open events end in an edge of marching dashes. */
function drawOpen({ ctx, looks }: Ground, plan: Plan, flags: Uint16Array, phase: number): void {
  ctx.strokeStyle = looks.text;
  ctx.lineWidth = 2;
  ctx.setLineDash([3, 3]);
  ctx.lineDashOffset = -phase;
  ctx.beginPath();
  for (let k = 0; k < plan.n; k++) {
    if (!(flags[plan.row[k]!]! & FLAGS.open)) continue;
    const x = plan.x[k]! + plan.w[k]!;
    ctx.moveTo(x, plan.y[k]!);
    ctx.lineTo(x, plan.y[k]! + plan.h[k]!);
  }
  ctx.stroke();
  ctx.setLineDash([]);
}
