// Which rows the timeline has. Always true: every agent is in exactly one lane that holds events; lanes come in the order of the
// spawn tree (or of depth), people and tools outside the team last; what is folded says how many it holds.
import type { Agent } from "../shapes.gen";
import type { GroupBy } from "../state";

export interface Lane {
  /** Stays the same while lanes around it open and close. */
  key: string;
  /** Without its count. */
  name: string;
  /** Whose events are drawn here; none where the lane is the heading of an opened fold. */
  agents: number[];
  /** How many agents the lane stands for, also as a heading. */
  count: number;
  /** Rows inside a folded lane: agents that do not overlap in time share one. */
  tracks: number;
  indent: number;
  fold: "none" | "closed" | "open";
  /** Row of this lane in the server's bins, -1 without. */
  row: number;
}

export interface Lanes {
  list: Lane[];
  /** Agent to lane. */
  ofAgent: Int32Array;
  /** Track of an agent in its lane. */
  slot: Uint32Array;
}

/** A group that was made elsewhere: the server's bins of a large trace. */
export interface Group {
  label: string;
  members: number[];
}

/** From here on lanes are roles, not agents. */
export const MANY_AGENTS = 200;
/** So many siblings of one role become one lane. */
export const FOLD_AT = 4;

/** What an agent is one of: its role, or its name without a number at the end. */
export function kindOf(agent: Agent): string {
  if (agent.role) return agent.role;
  const name = agent.label || agent.name;
  return name.replace(/[\s_\-.:#/]*\d+$/, "") || name;
}

/** `opened` holds the keys of folds that are open. */
export function buildLanes(agents: readonly Agent[], by: GroupBy, opened: ReadonlySet<string>, groups?: readonly Group[]): Lanes {
  if (groups) {
    const keyed = groups.map((group, row) => ({ ...group, key: `b:${row}`, row, indent: indentOf(agents, group.members) }));
    return finish(agents, grouped(agents, keyed, opened));
  }
  if (by === "role") return finish(agents, grouped(agents, byRole(agents), opened));
  if (by === "depth") return finish(agents, grouped(agents, byDepth(agents), opened));
  if (agents.length <= MANY_AGENTS) return finish(agents, tree(agents, opened));
  const roles = byRoleAndDepth(agents);
  return finish(agents, grouped(agents, roles.length <= MANY_AGENTS ? roles : byDepth(agents), opened));
}

interface Keyed extends Group {
  key: string;
  row: number;
  indent: number;
}

/** The depth that all members of a group share; groups across depths stand at the left. */
function indentOf(agents: readonly Agent[], members: readonly number[]): number {
  const depth = agents[members[0] ?? -1]?.depth ?? 0;
  return members.every((i) => agents[i]?.depth === depth) ? Math.max(0, depth) : 0;
}

function gather(agents: readonly Agent[], keyOf: (agent: Agent) => string, nameOf: (agent: Agent) => string): Keyed[] {
  const found = new Map<string, Keyed>();
  for (const i of teamFirst(agents)) {
    const key = keyOf(agents[i]!);
    let group = found.get(key);
    if (!group) found.set(key, (group = { key, label: nameOf(agents[i]!), members: [], row: -1, indent: 0 }));
    group.members.push(i);
  }
  return [...found.values()];
}

function teamFirst(agents: readonly Agent[]): number[] {
  const all = agents.map((_, i) => i);
  return [...all.filter((i) => !agents[i]!.is_outside), ...all.filter((i) => agents[i]!.is_outside)];
}

const byRole = (agents: readonly Agent[]): Keyed[] => gather(agents, (a) => `r:${kindOf(a)}`, kindOf);

function byDepth(agents: readonly Agent[]): Keyed[] {
  const nameOf = (a: Agent) => (a.is_outside ? "outside" : `depth ${a.depth}`);
  const groups = gather(agents, (a) => `d:${nameOf(a)}`, nameOf);
  return groups.sort((a, b) => place(agents, a) - place(agents, b));
}

/** A role at two depths is two lanes: how far they stand in says which. */
function byRoleAndDepth(agents: readonly Agent[]): Keyed[] {
  const found = gather(agents, (a) => `g:${a.depth}:${kindOf(a)}`, kindOf);
  const groups = found.map((group) => ({ ...group, indent: indentOf(agents, group.members) }));
  return groups.sort((a, b) => place(agents, a) - place(agents, b));
}

function place(agents: readonly Agent[], group: Keyed): number {
  const first = agents[group.members[0]!]!;
  return first.is_outside ? Number.MAX_SAFE_INTEGER : first.depth;
}

function grouped(agents: readonly Agent[], groups: readonly Keyed[], opened: ReadonlySet<string>): Lane[] {
  const out: Lane[] = [];
  for (const group of groups) pushGroup(agents, group, group.indent, opened, out, () => undefined);
  return out;
}

/** A group as one lane, or a heading and its members; `after` adds what follows each member of an opened one. */
function pushGroup(
  agents: readonly Agent[], group: Keyed, indent: number, opened: ReadonlySet<string>, out: Lane[],
  after: (agent: number) => void,
): void {
  const { members, row, key } = group;
  if (members.length === 1) {
    out.push(ofOne(agents, members[0]!, indent, row));
    after(members[0]!);
    return;
  }
  const isOpen = opened.has(key);
  const fold = isOpen ? "open" : "closed";
  out.push({ key, name: group.label, agents: isOpen ? [] : members, count: members.length, tracks: 1, indent, fold, row });
  if (!isOpen) return;
  for (const agent of [...members].sort((a, b) => agents[a]!.start - agents[b]!.start || a - b)) {
    out.push(ofOne(agents, agent, indent + 1, -1));
    after(agent);
  }
}

function ofOne(agents: readonly Agent[], agent: number, indent: number, row: number): Lane {
  return { key: `a:${agent}`, name: agents[agent]!.label || agents[agent]!.name, agents: [agent], count: 1, tracks: 1, indent, fold: "none", row };
}

/** The spawn tree, children in order of spawning, like siblings folded; children of folded siblings are pooled and folded too. */
function tree(agents: readonly Agent[], opened: ReadonlySet<string>): Lane[] {
  const children = childrenOf(agents);
  const out: Lane[] = [];
  const seen = new Set<number>();
  const visit = (nodes: readonly number[], indent: number, under: string): void => {
    const fresh = nodes.filter((i) => !seen.has(i));
    fresh.forEach((i) => seen.add(i));
    for (const group of siblings(agents, fresh, under)) {
      if (group.members.length < FOLD_AT) {
        for (const i of group.members) {
          out.push(ofOne(agents, i, indent, -1));
          visit(children[i]!, indent + 1, `${i}`);
        }
        continue;
      }
      pushGroup(agents, group, indent, opened, out, (i) => visit(children[i]!, indent + 2, `${i}`));
      if (!opened.has(group.key)) visit(group.members.flatMap((i) => children[i]!), indent + 1, group.key);
    }
  };
  const order = teamFirst(agents);
  visit(order.filter((i) => !isChild(agents, i)), 0, "");
  visit(order, 0, "lost"); // parents in a circle: a broken trace still shows everybody
  return out;
}

function isChild(agents: readonly Agent[], i: number): boolean {
  const { parent } = agents[i]!;
  return parent >= 0 && parent < agents.length && parent !== i;
}

function childrenOf(agents: readonly Agent[]): number[][] {
  const children: number[][] = agents.map(() => []);
  agents.forEach((a, i) => isChild(agents, i) && children[a.parent]!.push(i));
  for (const list of children) list.sort((a, b) => agents[a]!.spawn - agents[b]!.spawn || a - b);
  return children;
}

function siblings(agents: readonly Agent[], nodes: readonly number[], under: string): Keyed[] {
  const found = new Map<string, Keyed>();
  for (const i of nodes) {
    const label = kindOf(agents[i]!);
    const key = `s:${under}:${label}`;
    let group = found.get(key);
    if (!group) found.set(key, (group = { key, label, members: [], row: -1, indent: 0 }));
    group.members.push(i);
  }
  return [...found.values()];
}

/** The name of a lane with how many it holds. */
export function labelOf(lane: Lane): string {
  return lane.count > 1 ? `${lane.name} ×${lane.count.toLocaleString("en")}` : lane.name;
}

function finish(agents: readonly Agent[], list: Lane[]): Lanes {
  const ofAgent = new Int32Array(agents.length).fill(-1);
  const slot = new Uint32Array(agents.length);
  const laid = list.map((lane, row) => {
    const inside = lane.agents.filter((agent) => agent >= 0 && agent < agents.length);
    inside.forEach((agent) => { ofAgent[agent] = row; });
    return { ...lane, agents: inside, tracks: pack(agents, inside, slot) };
  });
  return { list: laid, ofAgent, slot };
}

/** Gives each agent the first track that is free when it begins; gives how many there are. */
function pack(agents: readonly Agent[], members: readonly number[], slot: Uint32Array): number {
  const until: number[] = [];
  for (const agent of [...members].sort((a, b) => agents[a]!.start - agents[b]!.start || a - b)) {
    const { start, end } = agents[agent]!;
    let track = until.findIndex((free) => free <= start);
    if (track < 0) track = until.length;
    until[track] = end;
    slot[agent] = track;
  }
  return Math.max(1, until.length);
}
