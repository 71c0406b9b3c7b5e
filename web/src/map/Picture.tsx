// The team as a drawing, beside the tree: who made whom, how much each one used, who spoke with whom. Always true: the tree is
// its twin for keyboard and screen readers; both show the same rows and the same selection.
import { signed } from "../numbers";
import { creditColour } from "../palette";
import { visible } from "../plaintext";
import { hover, method, selectAgent, shade } from "../state";
import { arcsAt, DASHES } from "./Lines";
import type { Line, LineKind, Row } from "./layout";
import { place, type Node } from "./picture";

const COLUMN = 220;
const MARGIN = 26;
/** A letter, about; a name of the longest kind. */
const LETTER = 7;
const LONGEST = 20;
/** A drawing of more nodes says nothing; the tree does. */
export const MOST_NODES = 400;

interface Props {
  rows: readonly Row[]; tokens: readonly number[]; credits: readonly (number | null)[]; lines: readonly Line[];
    shown: ReadonlySet<LineKind>;
  places: Int32Array; focus: number; chosen: number;
}

/** Height of a row: close together where there are many. */
function spacing(leaves: number): number {
  return Math.min(40, Math.max(18, 480 / Math.max(1, leaves)));
}

function limb(from: Node, to: Node): string {
  const { x: x1, y: y1 } = from;
  const { x: x2, y: y2 } = to;
  return `M${x1} ${y1}C${x1 + COLUMN / 2} ${y1} ${x2 - COLUMN / 2} ${y2} ${x2} ${y2}`;
}

/** A bow between two nodes, bent away from the limbs of the tree. */
function bow(from: Node, to: Node, bend: number): string {
  const { x: x1, y: y1 } = from;
  const { x: x2, y: y2 } = to;
  const [mx, my] = [(x1 + x2) / 2 + (y2 - y1) * 0.12 * bend, (y1 + y2) / 2 - (x2 - x1) * 0.12 * bend + 14 * bend];
  const length = Math.hypot(x2 - mx, y2 - my) || 1;
  const [ex, ey] = [x2 - ((x2 - mx) / length) * (to.r + 3), y2 - ((y2 - my) / length) * (to.r + 3)];
  return `M${x1} ${y1}Q${mx} ${my} ${ex} ${ey}`;
}

/** A name, cut where it is long, and never in the middle of a letter. */
function short(name: string): string {
  const letters = [...visible(name)];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : letters.join("");
}

/** Right of a leaf, left of the root, else above the node and to its left: where no line goes through the words. */
function label({ x, y, r }: Node, hasChildren: boolean, isRoot: boolean): { x: number; y: number; "text-anchor": "start" | "end" } {
  if (!hasChildren) return { x: x + r + 6, y: y + 4, "text-anchor": "start" };
  return isRoot ? { x: x - r - 6, y: y + 4, "text-anchor": "end" } : { x: x + r, y: y - r - 5, "text-anchor": "end" };
}

export function Picture({ rows, tokens, credits, lines, shown, places, focus, chosen }: Props) {
  // An open group is where its members hang; what it adds up to is theirs.
  const isOwn = rows.map((row) => !(row.isGroup && row.isOpen));
  const placed = place(rows, tokens.map((value, r) => (isOwn[r] ? value : 0)));
  const step = spacing(Math.max(0, ...placed.map((node) => node.y)) + 1);
  // the root's name and credit stand to its left
  const roots = placed.filter((node) => rows[node.row]!.parent < 0 && rows[node.row]!.hasChildren);
  const letters = 6 + Math.min(LONGEST, Math.max(0, ...roots.map((node) => rows[node.row]!.label.length)));
  const left = MARGIN + LETTER * letters + Math.min(step * 0.45, Math.max(0, ...roots.map((node) => node.r)));
  const nodes = placed.map((node) =>
    ({ ...node, x: left + node.x * COLUMN, y: MARGIN + node.y * step, r: Math.min(node.r, step * 0.45) }));
  const scale = Math.max(0, ...credits.map((value, r) => (isOwn[r] ? Math.abs(value ?? 0) : 0)));
  const width = 190 + Math.max(0, ...nodes.map((node) => node.x));
  const height = MARGIN + Math.max(0, ...nodes.map((node) => node.y));
  // Who made whom is in the limbs already.
  const arcs = focus < 0 ? []
    : arcsAt(lines, new Set([...shown].filter((kind) => kind !== "delegation")), places, focus).slice(0, 80);
  return (
    <div class="picture" aria-hidden="true">
      <svg width={width} height={height}>
        {nodes.map((node) => {
          const parent = rows[node.row]!.parent;
          return parent >= 0 && <path key={node.row} class="limb" d={limb(nodes[parent]!, node)} />;
        })}
        {nodes.map((node) => {
          const { x, y } = node;
          const row = rows[node.row]!;
          const credit = isOwn[node.row] ? credits[node.row] ?? null : null;
          const point = (agent: number): void => { hover.value = { event: -1, agent }; };
          return (
            <g key={row.key} class={chosen === node.row ? "node chosen" : "node"} onClick={() => selectAgent(row.agents[0]!)}
              onMouseEnter={() => point(row.agents[0]!)} onMouseLeave={() => point(-1)}>
              {row.isGroup && <circle cx={x + 3} cy={y - 3} r={node.r} class="behind" />}
              <circle cx={x} cy={y} r={node.r} fill={creditColour(credit ?? NaN, scale, shade.value)} />
              <text {...label(node, nodes[node.row + 1] !== undefined
                && rows[node.row + 1]!.parent === node.row, row.parent < 0)}><tspan class="node-name">{short(row.label)}</tspan>
                {credit !== null && <tspan class="quiet" dx="6">{signed(credit)}</tspan>}</text>
            </g>
          );
        })}
        {arcs.map((arc, i) => (
          <path key={i} class={`bow line-${arc.kind}`} d={bow(nodes[arc.from]!, nodes[arc.to]!, arc.from < arc.to ? 1 : -1)}
            stroke-dasharray={DASHES[arc.kind]}
            stroke-width={Math.min(3.5, 1.2 + Math.log10(arc.count))} marker-end="url(#map-arrow)" />
        ))}
      </svg>
      <p class="quiet picture-note">Area: own tokens. Colour: credit{method.value ? ` by ${method.value}` : ""}, orange below 0,
        blue above. Point at an agent to see whom it spoke with.</p>
    </div>
  );
}
