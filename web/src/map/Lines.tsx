// Lines between agents beside the tree: an arc from row to row with an arrow. Always true: kind shows by dash and hue, never by
// hue alone.
import type { Line, LineKind } from "./layout";

/** Height of a row. */
export const ROW_PX = 28;
const WIDTH = 40;
/** More lines than this say nothing; the largest are kept and the rest is counted. */
const MOST = 60;
export const DASHES: Record<LineKind, string> = { delegation: "", message: "5 3", merge: "1.5 3", taint: "8 2 2 2" };

interface Arc { from: number; to: number; kind: LineKind; count: number }

/** Arcs at a row: lines of its agents with others, joined by row. */
export function arcsAt(lines: readonly Line[], shown: ReadonlySet<LineKind>, places: Int32Array, focus: number): Arc[] {
  const found = new Map<string, Arc>();
  for (const line of lines) {
    if (!shown.has(line.kind)) continue;
    const [from, to] = [places[line.from]!, places[line.to]!];
    if (from === to || (from !== focus && to !== focus)) continue;
    const key = `${line.kind} ${from} ${to}`;
    const arc = found.get(key);
    if (arc) arc.count += line.count; else found.set(key, { from, to, kind: line.kind, count: line.count });
  }
  return [...found.values()].sort((a, b) => b.count - a.count);
}

interface Props { lines: readonly Line[]; shown: ReadonlySet<LineKind>; places: Int32Array; focus: number; rows: number }

export function Lines({ lines, shown, places, focus, rows }: Props) {
  const arcs = focus < 0 ? [] : arcsAt(lines, shown, places, focus);
  return (
    <svg class="map-lines" width={WIDTH} height={rows * ROW_PX} aria-hidden="true">
      <defs>
        <marker id="map-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"
          orient="auto">
          <path d="M0 0.8L7 4L0 7.2z" fill="context-stroke" />
        </marker>
      </defs>
      {arcs.slice(0, MOST).map((arc, i) => {
        const lane = Object.keys(DASHES).indexOf(arc.kind);
        const [y1, y2] = [arc.from, arc.to].map((row) => row * ROW_PX + ROW_PX / 2 + (lane - 1.5) * 3) as [number, number];
        const out = WIDTH - 4 - Math.min(WIDTH - 16, 14 + Math.abs(arc.from - arc.to) * 5);
        return (
          <path key={i} class={`line-${arc.kind}`} d={`M${WIDTH - 4} ${y1}C${out} ${y1} ${out} ${y2} ${WIDTH - 4} ${y2}`}
            fill="none"
            stroke-width={Math.min(3.5, 1.2 + Math.log10(arc.count))} stroke-dasharray={DASHES[arc.kind]}
              marker-end="url(#map-arrow)" />
        );
      })}
    </svg>
  );
}
