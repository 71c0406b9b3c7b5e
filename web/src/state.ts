// What the page knows, as signals. Always true: one selection is shared by every view; data that has been shown stays until
// better data is there; an event is known by its number n, an agent by its place in `about.agents`, -1 is none.
import { batch, computed, effect, signal } from "@preact/signals";
import type { Shade } from "./palette";
import { visible } from "./plaintext";
import { browserBar, format, parse, type Bar, type Route, type View } from "./router";
import { isInArrays, search, terms } from "./search";
import type { About, Credit, MethodInfo } from "./shapes.gen";
import { say } from "./shell/toast";
import { SourceError, type Bins, type Columns, type Source } from "./source";

/** A trace that is open. `columns` is null for a large one (ask for windows), `bins` for a small one. */
export interface Current { id: string; about: About; columns: Columns | null; bins: Bins | null }
export type ColourBy = "family" | "credit" | "reward" | "tokens" | "cost" | "taint";
export type GroupBy = "agent" | "role" | "depth";
export type Theme = "auto" | "light" | "dark";

export const source = signal<Source | null>(null);
export const route = signal<Route>({ page: "traces", query: "" });
export const trace = signal<Current | null>(null);
/** Why the trace of the route cannot be shown. */
export const problem = signal<SourceError | null>(null);
export const isLoading = signal(false);
/** Whether the server answers. The last data stays on the screen while it does not. */
export const connection = signal<"ok" | "lost">("ok");
/** Grows when the server is back: pages that failed ask again. */
export const epoch = signal(0);

export const selectedEvent = signal(-1);
export const selectedAgent = signal(-1);
export const hover = signal<{ event: number; agent: number }>({ event: -1, agent: -1 });
export const query = signal("");
/** One byte per event of the whole trace, 1 where the filter matches; null when there is no filter. */
export const mask = signal<Uint8Array | null>(null);
export const filterProblem = signal<SourceError | null>(null);
export const colourBy = signal<ColourBy>("family");
export const groupBy = signal<GroupBy>("agent");
/** Ids of the credit methods on the screen: the first one colours, the second stands beside it. */
export const methods = signal<string[]>([]);
/** Methods this trace can answer, with reasons where it cannot; null until asked. */
export const methodList = signal<MethodInfo[] | null>(null);
/** Credit of the first method by event, for colours, badges and the filter; null until it is there. */
export const credit = signal<Credit | null>(null);
/**
 * The one active method, whose numbers every view shows under its name: the reader's choice, or else the best that is identified
 * for this trace, as `counterpoint credit` chooses it.
 */
export const method = computed<string | null>(() => methods.value[0] ?? chosenMethod(methodList.value ?? []));
/** Seconds from and to; null is everything. */
export const zoom = signal<[number, number] | null>(null);
/** A range the user marked (M), in seconds. */
export const marked = signal<[number, number] | null>(null);
/** Events that may have decided a failure, by rank: marked on the timeline once the Blame panel has ranked them. */
export const suspects = signal<number[]>([]);
/** Events of the window of a large trace that is on the screen. The Time view keeps it. */
export const windowed = signal<Columns | null>(null);
export const isFollowing = signal(false);
export const theme = signal<Theme>("auto");
const systemShade = signal<Shade>("light");
/** Light or dark, with `auto` resolved. */
export const shade = computed<Shade>(() => (theme.value === "auto" ? systemShade.value : theme.value));

/** The arrays at hand: the whole trace, or the window of a large one. */
export const columns = computed<Columns | null>(() => trace.value?.columns ?? windowed.value);
export const view = computed<View>(() => (route.value.page === "trace" ? route.value.view : "time"));

/** Credit of each event by number, NaN where the method says nothing: none is not zero. */
export const creditByEvent = computed<Float32Array | null>(() => {
  const [current, found] = [trace.value, credit.value];
  if (!current || !found?.rows.some((row) => row.event >= 0)) return null;
  const values = new Float32Array(current.about.events).fill(NaN);
  for (const row of found.rows) {
    if (row.event >= 0) values[row.event] = (Number.isNaN(values[row.event]!) ? 0 : values[row.event]!) + row.value;
  }
  return values;
});

/** Credit of each agent by its place in `about.agents`, null where there is none. */
export const creditByAgent = computed<(number | null)[]>(() => {
  const agents = trace.value?.about.agents ?? [];
  const found = credit.value;
  return agents.map((agent) => (found && !found.refusal ? found.by_agent[agent.name] ?? null : null));
});

let bar: Bar | null = null;

/** Place in the arrays at hand of an event, by its number; -1 when it is not there. */
export function rowOf(n: number): number {
  const at = columns.value;
  if (!at || n < 0) return -1;
  if (!at.numbers) return n < at.n ? n : -1;
  let [low, high] = [0, at.n - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const found = at.numbers[middle]!;
    if (found === n) return middle;
    if (found < n) low = middle + 1; else high = middle - 1;
  }
  return -1;
}

/** What an event is called: its id, or its number where the id is not at hand. */
export function eventName(n: number): string {
  const row = rowOf(n);
  return row < 0 ? `#${n}` : columns.value!.ids[row] ?? `#${n}`;
}

export function agentName(agent: number): string {
  const one = trace.value?.about.agents[agent];
  return one ? one.label || one.name : "nobody";
}

/** Selects an event, and its agent with it. */
export function selectEvent(n: number): void {
  const row = rowOf(n);
  batch(() => {
    selectedEvent.value = n;
    if (row >= 0) selectedAgent.value = columns.value!.agent[row]!;
  });
}

/** Selects an agent; an event of another agent is let go. */
export function selectAgent(agent: number): void {
  const row = rowOf(selectedEvent.value);
  batch(() => {
    selectedAgent.value = agent;
    if (row >= 0 && columns.value!.agent[row] !== agent) selectedEvent.value = -1;
  });
}

/** Zooms on the whole trace (null) or on a range, held inside the trace. */
export function zoomTo(range: [number, number] | null): void {
  const about = trace.value?.about;
  if (!range || !about) { zoom.value = null; return; }
  const from = Math.max(about.start, Math.min(range[0], about.end));
  const to = Math.min(about.end, Math.max(range[1], about.start));
  zoom.value = to > from && (from > about.start || to < about.end) ? [from, to] : null;
}

/** Next (+1) or previous (-1) event that an alert names, after the selected one; goes round. */
export function stepAlert(step: 1 | -1): void {
  const events = [...new Set(trace.value?.about.alerts.flatMap((alert) => alert.events) ?? [])].sort((a, b) => a - b);
  if (!events.length) return;
  const at = selectedEvent.value;
  const next = step > 0 ? events.find((n) => n > at) ?? events[0]! : events.findLast((n) => n < at) ?? events.at(-1)!;
  selectEvent(next);
}

/** Next (+1) or previous (-1) suspect by rank; goes round. */
export function stepSuspect(step: 1 | -1): void {
  const found = suspects.value;
  if (!found.length) return;
  const at = found.indexOf(selectedEvent.value);
  selectEvent(found[at < 0 ? (step > 0 ? 0 : found.length - 1) : (at + step + found.length) % found.length]!);
}

/** The event beside the selected one in its agent's lane. */
export function stepInLane(step: 1 | -1): void {
  const at = columns.value;
  if (!at) return;
  const row = rowOf(selectedEvent.value);
  const agent = row >= 0 ? at.agent[row]! : Math.max(0, selectedAgent.value);
  for (let i = row < 0 ? (step > 0 ? 0 : at.n - 1) : row + step; i >= 0 && i < at.n; i += step) {
    if (at.agent[i] === agent) { selectEvent(at.numbers?.[i] ?? i); return; }
  }
}

/** The address of a route as an `href`. */
export function link(to: Route): string {
  return bar ? bar.href(format(to)) : format(to);
}

/** Goes to a route; the back button leads here again. */
export function go(to: Route): void {
  bar?.write(format(to), true);
  arrive(to);
}

export function showView(next: View): void {
  const at = route.value;
  if (at.page === "trace" && at.view !== next) go({ ...at, ...chosen(), view: next });
}

/** The address of what is on the screen, whole. */
export function fullLink(): string {
  return new URL(link(here()), globalThis.location?.href ?? "http://localhost/").href;
}

function chosen(): { event: string | null; zoom: [number, number] | null; filter: string; methods: string[] } {
  const [n, row] = [selectedEvent.value, rowOf(selectedEvent.value)];
  const event = n < 0 ? null : row < 0 ? `~${n}` : columns.value!.ids[row] ?? `~${n}`;
  return { event, zoom: zoom.value, filter: query.value, methods: methods.value };
}

/** The route with what has been chosen since. Until the trace is there its own choices stand. */
function here(): Route {
  const at = route.value;
  return at.page === "trace" && trace.value?.id === at.id ? { ...at, ...chosen() } : at;
}

function eventOf(text: string | null): number {
  if (text === null) return -1;
  const found = columns.value?.ids.indexOf(text) ?? -1;
  if (found >= 0) return columns.value!.numbers?.[found] ?? found;
  return /^~\d+$/.test(text) ? Number(text.slice(1)) : -1;
}

function arrive(to: Route): void {
  batch(() => {
    route.value = to;
    if (to.page === "trace" && trace.value?.id === to.id) restore(to);
  });
  if (to.page === "trace" && trace.value?.id !== to.id) void load(to.id);
}

function restore(to: Route): void {
  if (to.page !== "trace") return;
  zoomTo(to.zoom);
  query.value = to.filter;
  methods.value = to.methods;
  const n = eventOf(to.event);
  if (n >= 0) selectEvent(n); else { selectedEvent.value = -1; if (to.event !== null) void lookUp(to.id, to.event); }
}

/** The event of a link into a large trace, where ids are not at hand. */
async function lookUp(id: string, event: string): Promise<void> {
  const found = await source.value?.find(id, `id:"${event}"`).catch(() => null);
  if (!found || trace.value?.id !== id) return;
  if (found.length) selectEvent(found[0]!);
  else say(`There is no event ${visible(event)} in this trace.`);
}

/** Puts a trace on the screen. Of the same trace again, what the user has chosen since the address was read stands. */
function open(next: Current): void {
  const at = here();
  batch(() => {
    trace.value = next;
    problem.value = null;
    windowed.value = null;
    mask.value = null;
    methodList.value = null;
    credit.value = null;
    selectedAgent.value = -1;
    hover.value = { event: -1, agent: -1 };
    marked.value = null;
    suspects.value = [];
    restore(at);
  });
}

/** Opens a trace: what it is, then its arrays or, for a large one, its bins. */
async function load(id: string): Promise<void> {
  const from = source.value;
  if (!from) return;
  isLoading.value = true;
  const isWanted = (): boolean => route.value.page === "trace" && route.value.id === id && source.value === from;
  try {
    const about = await from.about(id, trace.value?.id !== id);
    const [whole, bins] = about.is_large ? [null, await from.bins(id, about.is_partial)] : [await from.columns(id), null];
    if (!isWanted()) return;
    open({ id, about, columns: whole, bins });
    if (!about.is_partial) return;
    // A large trace was drawn at first sight; now all of it is read.
    const [rest, picture] = [await from.about(id), await from.bins(id)];
    if (isWanted()) open({ id, about: rest, columns: null, bins: picture });
  } catch (error) {
    if (isWanted()) problem.value = error instanceof SourceError ? error : new SourceError(String(error));
  } finally {
    if (isWanted()) isLoading.value = false;
  }
}

/** Asks again for what the page shows: after a fork, or when the server is back. */
export function reload(): void {
  if (route.value.page === "trace") void load(route.value.id);
  epoch.value += 1;
}

async function filterBy(text: string, current: Current): Promise<void> {
  try {
    const found = terms(text);
    if (!found.length) { mask.value = null; filterProblem.value = null; return; }
    const { about, columns: whole } = current;
    // What the arrays hold is answered here, at once; the rest is asked, and an event must be in both answers.
    const [here, there] = whole ? [found.filter(isInArrays), found.filter((term) => !isInArrays(term))] : [[], found];
    const asked = there.length ? await source.value!.find(current.id, there.map((term) => term.raw).join(" ")) : null;
    if (query.value !== text || trace.value !== current) return;
    let next = new Uint8Array(about.events);
    for (const n of asked ?? []) next[n] = 1;
    if (whole && (here.length || !asked)) {
      const both = new Uint8Array(about.events);
      for (const n of search(here, { about, columns: whole, credit: creditByEvent.peek() })) both[n] = asked ? next[n]! : 1;
      next = both;
    }
    batch(() => { mask.value = next; filterProblem.value = null; });
  } catch (error) {
    if (query.value === text) filterProblem.value = error instanceof SourceError ? error : new SourceError(String(error));
  }
}

async function loadMethods(current: Current): Promise<void> {
  const found = await source.value!.methods(current.id).catch(() => []);
  if (trace.value !== current) return;
  methodList.value = found;
}

/** The method that is shown where the reader chose none; null where none answers. */
export function chosenMethod(all: readonly MethodInfo[]): string | null {
  return all.find((one) => one.why !== null)?.id ?? null;
}

/** Credit of the active method by event, or by what it has. */
async function loadCredit(current: Current, id: string): Promise<void> {
  const ask = (unit: string): Promise<Credit | null> => source.value!.credit(current.id, id, unit).catch(() => null);
  const byEvent = await ask("event");
  // A method that only speaks of agents or turns still has something to say.
  const found = byEvent?.refusal && byEvent.units.length ? await ask("") : byEvent;
  if (trace.value === current && method.value === id) credit.value = found;
}

/** Keeps a preference on this machine. */
export function keep(name: string, value: string): void {
  try { localStorage.setItem(`counterpoint-${name}`, value); } catch { /* a browser may forbid it; then nothing is kept */ }
}

export function recall(name: string): string | null {
  try { return localStorage.getItem(`counterpoint-${name}`); } catch { return null; }
}

/** Light, dark, as the system says. */
export function nextTheme(): void {
  const order: Theme[] = ["auto", "light", "dark"];
  theme.value = order[(order.indexOf(theme.value) + 1) % order.length]!;
  keep("theme", theme.value);
}

/** Begins: reads the address, listens to the bar, the system's theme and the signals. */
export function start(from: Source, addressBar: Bar = browserBar(from.kind === "file")): void {
  bar = addressBar;
  source.value = from;
  const kept = recall("theme");
  if (kept === "light" || kept === "dark") theme.value = kept;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  systemShade.value = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => { systemShade.value = dark.matches ? "dark" : "light"; });
  addressBar.listen(() => arrive(parse(addressBar.read())));
  effect(() => { const current = trace.value; const text = query.value; if (current) void filterBy(text, current); });
  effect(() => { const current = trace.value; if (current && !current.about.is_partial) void loadMethods(current); });
  effect(() => {
    const current = trace.value;
    const active = method.value;
    if (!current || !active) return;
    // numbers of another method must not stand under this one's name
    if (credit.peek()?.method !== active) credit.value = null;
    void loadCredit(current, active);
  });
  let timer = 0;
  effect(() => {
    const address = format(here());
    clearTimeout(timer);
    // Browsers refuse more than some hundred changes of the address in ten seconds, which a pan would make.
    timer = window.setTimeout(() => { if (addressBar.read().replace(/^#/, "") !== address) addressBar.write(address, false); },
      250);
  });
  arrive(parse(addressBar.read()));
}
