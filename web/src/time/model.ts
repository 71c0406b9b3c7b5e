// The timeline's data, from the page's: each part is worked out again only when what it is made from changes. Always true: rows
// are places in `columns` (the whole trace, or the window of a large one); bins may be older than the filter for a moment,
// never wrong in time.
import { computed, signal } from "@preact/signals";
import { FLAGS } from "../shapes.gen";
import { colourBy, columns, creditByAgent, creditByEvent, groupBy, mask, trace, type ColourBy } from "../state";
import type { Bins } from "../source";
import { brightened, buildBinsInSlices, type LaneBins } from "./bins";
import { dimmed, scaleOf, valuesByAgent, valuesByRow } from "./colour";
import { indexLanes, place } from "./events";
import { idleGaps, idleGapsOfBins, timeMap, type TimeMap } from "./gaps";
import { buildLanes, type Lanes } from "./lanes";

/** Keys of the folds that the user opened. */
export const opened = signal<ReadonlySet<string>>(new Set());
/** Rewards of single events, by number; null until asked or where there are none. */
export const rewardByEvent = signal<Float32Array | null>(null);

/** The agents alone: a new window of a large trace changes no lanes. */
const team = computed(() => trace.value?.about.agents ?? null);
const serverBins = computed(() => trace.value?.bins ?? null);

export const map = computed<TimeMap | null>(() => {
  const current = trace.value;
  if (!current) return null;
  const { about, bins } = current;
  if (current.columns) return timeMap(about.start, about.end, idleGaps(current.columns, about.end));
  const finest = bins?.head.levels.at(-1);
  if (!bins || !finest) return timeMap(about.start, about.end, []);
  const { start, end, lanes: names } = bins.head;
  return timeMap(about.start, about.end, idleGapsOfBins(bins.levels.at(-1)!, names.length, finest.bins, start, end));
});

export const lanes = computed<Lanes | null>(() => {
  const [agents, bins] = [team.value, serverBins.value];
  if (!agents) return null;
  if (!bins || groupBy.value !== "agent") return buildLanes(agents, groupBy.value, opened.value);
  const { lanes: names, members } = bins.head;
  const groups = names.map((name, i) => ({ label: uncounted(name), members: members[i] ?? [] }));
  return buildLanes(agents, "agent", opened.value, groups);
});

/** A lane's own name: how many it holds is added where all lanes get it. */
const uncounted = (label: string) => label.replace(/ ×[\d,]+$/, "");

export const placed = computed(() => {
  const [at, how] = [columns.value, map.value];
  return at && how ? place(at, how, trace.value!.about.end) : null;
});

export const index = computed(() => (
  columns.value && placed.value && lanes.value ? indexLanes(columns.value, placed.value, lanes.value) : null));

/** Credit by row, for sums; null where the method says nothing about single events. */
export const creditByRow = computed(() => {
  const found = columns.value ? valuesByRow(columns.value, creditByEvent.value) : null;
  return found?.some((value) => !Number.isNaN(value)) ? found : null;
});
/** Credit by row for colours: of the event, or else of its agent. */
const creditShown = computed(() => {
  const at = columns.value;
  return creditByRow.value ?? (at ? valuesByAgent(at, creditByAgent.value) : null);
});
export const isCreditOfAgents = computed(() => !creditByRow.value && creditShown.value !== null);

export const scale = computed(() => {
  const [at, by] = [columns.value, colourBy.value];
  if (!at || !trace.value) return null;
  const values = by === "credit" ? creditShown.value : by === "reward" ? valuesByRow(at, rewardByEvent.value) : null;
  return scaleOf(by, at, trace.value.about.types, values);
});

/** Classes with what the filter leaves out in a second set. */
export const classes = computed(() => (scale.value && columns.value ? dimmed(scale.value, columns.value, mask.value) : null));

/** From when to when each agent lived, in shown seconds: the thin line of waiting. */
export const lives = computed(() => {
  const [agents, at] = [team.value, map.value];
  if (!agents || !at) return null;
  return { from: Float64Array.from(agents, (a) => at.fold(a.start)), to: Float64Array.from(agents, (a) => at.fold(a.end)) };
});

/** Rows of the critical path in order of time. */
export const path = computed<Uint32Array>(() => {
  const at = columns.value;
  const rows: number[] = [];
  for (let i = 0; at && i < at.n; i++) if (at.flags[i]! & FLAGS.on_path) rows.push(i);
  return Uint32Array.from(rows);
});

/** Agents with an event that content from outside may have reached. */
export const taintedAgents = computed<ReadonlySet<number>>(() => {
  const at = columns.value;
  const found = new Set<number>();
  for (let i = 0; at && i < at.n; i++) if (at.flags[i]! & FLAGS.tainted) found.add(at.agent[i]!);
  return found;
});

export const hasOpen = computed<boolean>(() => columns.value?.flags.some((flags) => (flags & FLAGS.open) !== 0) ?? false);

/** Bins, and what they were made for: they are drawn only with the lanes they have. */
export interface Binned {
  bins: LaneBins;
  lanes: Lanes | null;
  by: ColourBy;
}

/** Bins of the lanes: built here in slices, or as the server made them. */
export const binned = signal<Binned | null>(null);
/** The server's bins, made ready once. */
let servers: { given: Bins; binned: Binned } | null = null;
const SLICE_MS = 6;
const FIRST_MS = 80;
/** Grows with every build, so that a build that is out of date stops. */
let build = 0;

/** Builds bins for what is at hand. To be called in an effect: it reads what they are made from. */
export function rebuildBins(): void {
  const mine = ++build;
  const given = serverBins.value;
  if (given) {
    if (servers?.given !== given) servers = { given, binned: { bins: ofServer(given), lanes: null, by: "family" } };
    binned.value = servers.binned;
    return;
  }
  const [at, where, order, found, shown] = [lanes.value, placed.value, index.value, scale.value, classes.value];
  if (!at || !where || !order || !found || !shown) {
    binned.value = null;
    return;
  }
  const count = found.names.length;
  const work = {
    index: order, placed: where, classes: shown, count: mask.value ? 2 * count : count, preferred: count,
    agents: at.list.map((lane) => lane.tracks), length: map.value!.length,
  };
  // The first picture waits for these: what a small trace needs is built in one go.
  void buildBinsInSlices(work, () => mine === build, binned.peek() ? SLICE_MS : FIRST_MS).then((made) => {
    if (made && mine === build) binned.value = { bins: made, lanes: at, by: found.by };
  });
}

function ofServer(given: Bins): LaneBins {
  const { head } = given;
  const levels = head.levels.map((level, k) => ({ bins: level.bins, cells: brightened(given.levels[k]!, head.lanes.length) }));
  return {
    lanes: head.lanes.length, start: head.start, end: Math.max(head.end, head.start + 1e-6), isShown: false,
    levels: levels.sort((a, b) => a.bins - b.bins),
  };
}

/** Row of a lane in the bins, -1 where they do not have it. */
export function binRow(found: Binned, at: Lanes, lane: number): number {
  return found.bins.isShown ? lane : at.list[lane]!.row;
}
