// The spawn tree as rows. Always true: the same agents give the same rows; children stand in the order they were spawned; every
// agent is in exactly one row, alone or counted in a group; agents nobody made, or whose maker is unknown, are roots.
import type { Agent } from "../shapes.gen";

/** Over this many agents the tree opens folded by role and depth. */
export const FOLD_OVER = 200;
/** So many siblings of one role without children are one row, in any tree. */
export const TWINS = 5;

export interface Row {
  /** Stays the same while the tree is folded and unfolded. */
  key: string;
  label: string;
  /** One agent, or all of a group. */
  agents: number[];
  isGroup: boolean;
  /** Indent. */
  depth: number;
  hasChildren: boolean;
  isOpen: boolean;
  /** Row of the parent, -1 for a root. */
  parent: number;
  isOutside: boolean;
}

/** Agents by maker, in order of spawn. */
function childrenOf(agents: readonly Agent[]): Map<number, number[]> {
  const found = new Map<number, number[]>();
  agents.forEach((agent, i) => {
    const parent = agent.parent >= 0 && agent.parent < agents.length && agent.parent !== i ? agent.parent : -1;
    const list = found.get(parent);
    if (list) list.push(i); else found.set(parent, [i]);
  });
  for (const list of found.values()) list.sort((a, b) => agents[a]!.spawn - agents[b]!.spawn || a - b);
  return found;
}

/** What an agent is, for folding: its role, or its name without numbers where it has none. */
export function kindOf(agent: Agent): string {
  const name = agent.label || agent.name;
  return agent.role ?? (name.replace(/[-_ #.]*\d+$/, "") || name);
}

interface Growth {
  agents: readonly Agent[];
  children: Map<number, number[]>;
  toggled: ReadonlySet<string>;
  isFolded: boolean;
  rows: Row[];
  seen: Set<number>;
}

/**
 * Rows of the tree. `toggled` holds the keys of rows that the user opened or closed: a single agent begins open, a group closed.
 * With more than `FOLD_OVER` agents every role below a row is a group, so a first look is about as long as the tree is deep.
 */
export function rowsOf(agents: readonly Agent[], toggled: ReadonlySet<string> = new Set()): Row[] {
  const growth: Growth = { agents, children: childrenOf(agents), toggled, isFolded: agents.length > FOLD_OVER, rows: [],
    seen: new Set() };
  const roots = growth.children.get(-1) ?? [];
  grow(growth, roots.filter((i) => !agents[i]!.is_outside), 0, -1, "");
  grow(growth, roots.filter((i) => agents[i]!.is_outside), 0, -1, "outside/");
  // A circle of makers has no root; its agents are shown all the same.
  agents.forEach((_, i) => { if (!growth.seen.has(i)) add(growth, [i], false, 0, -1, `lost/${i}`); });
  return growth.rows;
}

function grow(growth: Growth, members: number[], depth: number, parent: number, path: string): void {
  const groups = new Map<string, number[]>();
  for (const i of members) {
    const kind = kindOf(growth.agents[i]!);
    const list = groups.get(kind);
    if (list) list.push(i); else groups.set(kind, [i]);
  }
  const done = new Set<string>();
  for (const i of members) {
    const kind = kindOf(growth.agents[i]!);
    if (done.has(kind)) continue;
    const list = groups.get(kind)!;
    if (!isGroup(growth, list, depth)) { add(growth, [i], false, depth, parent, `${path}${i}`); continue; }
    done.add(kind);
    add(growth, list, true, depth, parent, `${path}${kind}`);
  }
}

function isGroup(growth: Growth, list: number[], depth: number): boolean {
  if (growth.isFolded && depth > 0) return list.length > 1;
  if (growth.isFolded) return list.length > TWINS;
  return list.length >= TWINS && list.every((i) => !growth.children.get(i)?.length);
}

function add(growth: Growth, members: number[], isMany: boolean, depth: number, parent: number, key: string): void {
  const { agents, children, rows } = growth;
  for (const i of members) growth.seen.add(i);
  const below = members.flatMap((i) => children.get(i) ?? []).filter((i) => !growth.seen.has(i));
  const hasChildren = isMany || below.length > 0;
  const isOpen = hasChildren && growth.toggled.has(key) === isMany;
  const first = agents[members[0]!]!;
  const at = rows.length;
  rows.push({
    key, label: isMany ? `${kindOf(first)} ×${members.length.toLocaleString("en")}` : first.label || first.name, agents: members,
      isGroup: isMany, depth, hasChildren, isOpen, parent,
    isOutside: first.is_outside,
  });
  if (isMany && isOpen) {
    members.forEach((i) => add(growth, [i], false, depth + 1, at, `${key}/${i}`));
  } else if (isMany) {
    // Closed, a group still shows what its members made, folded too: depth by depth, a short picture of a large team.
    if (below.length) grow(growth, below, depth + 1, at, `${key}/`);
  } else if (isOpen) {
    grow(growth, below, depth + 1, at, `${key}/`);
  } else {
    hide(growth, below);
  }
}

/** Agents below a closed row count as seen. */
function hide(growth: Growth, members: number[]): void {
  for (const i of members) {
    if (growth.seen.has(i)) continue;
    growth.seen.add(i);
    hide(growth, growth.children.get(i) ?? []);
  }
}

/** Row of every agent; one under a closed row is at that row. */
export function rowOfAgent(rows: readonly Row[], agents: readonly Agent[]): Int32Array {
  const at = new Int32Array(agents.length).fill(-1);
  // Groups first: a member's own row, under an open group, wins.
  for (const isGroup of [true, false]) rows.forEach((row,
    r) => { if (row.isGroup === isGroup) for (const i of row.agents) at[i] = r; });
  for (let i = 0; i < agents.length; i++) {
    let up = i;
    for (let steps = 0; at[up]! < 0 && steps <= agents.length; steps++) up = agents[up]!.parent >= 0 ? agents[up]!.parent : up;
    at[i] = at[up]!;
  }
  return at;
}

/** Kinds of lines between agents that the map can draw, and the edge types behind each. */
export const LINES = {
  delegation: ["spawn"],
  message: ["message"],
  merge: ["return", "aggregate"],
  taint: ["safety_flow"],
} as const;
export type LineKind = keyof typeof LINES;

export interface Line { from: number; to: number; kind: LineKind; count: number }

interface Edges { src: Uint32Array; dst: Uint32Array; edge: Uint8Array; agent: Uint32Array }

/** Lines between agents, one per pair and kind, counted, in order of first event. */
export function linesOf(columns: Edges, edgeTypes: readonly string[]): Line[] {
  const kinds = edgeTypes.map((type) =>
    (Object.keys(LINES) as LineKind[]).find((kind) => (LINES[kind] as readonly string[]).includes(type)));
  const found = new Map<string, Line>();
  for (let i = 0; i < columns.src.length; i++) {
    const kind = kinds[columns.edge[i]!];
    if (!kind) continue;
    const [from, to] = [columns.agent[columns.src[i]!]!, columns.agent[columns.dst[i]!]!];
    if (from === to) continue;
    const key = `${kind} ${from} ${to}`;
    const line = found.get(key);
    if (line) line.count += 1; else found.set(key, { from, to, kind, count: 1 });
  }
  return [...found.values()];
}
