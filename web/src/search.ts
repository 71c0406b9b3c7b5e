// The search language over the arrays of a trace: words and fields, `kind:spawn agent:coder tokens>5k credit<0 tainted "merge"`.
// Always true: fields, marks and grammar are those of the server (`app/search.py`; both read tests/app/query_terms.json); terms are
// joined by and; an unknown field is an error, never an empty list; an amount that is not recorded matches no comparison. What
// the arrays do not hold (text, models) is asked of whoever holds it.
import { EVENT_FIELDS, EVENT_FLAGS, FLAGS, type About } from "./shapes.gen";
import { SourceError, type Columns } from "./source";

/** A field with a sign and a value, a mark (no sign), or a word (no field); `raw` is the term as it was written. */
export interface Term { field: string; sign: string; value: string; raw: string }
export interface Place { about: About; columns: Columns; credit: Float32Array | null }

const FLAG_WORDS: Record<string,
  number> = Object.fromEntries(Object.entries(EVENT_FLAGS).map(([word, flag]) => [word, FLAGS[flag]]));
/** Credit is what the page itself has asked for; the server does not know which method is meant. */
const FIELDS: Record<string, "text" | "number" | "date"> = { ...EVENT_FIELDS, credit: "number" };
const IN_ARRAYS = new Set(["id", "kind", "type", "agent", "role", "tool", "tokens", "cost", "seconds", "t", "turn", "step",
  "credit", "n", "depth", "date", "since", "until", "last"]);
export const FIELD_NAMES = Object.keys(FIELDS);
export const MARKS = Object.keys(EVENT_FLAGS);
const UNITS: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9 };

const TERM = /(?:([\p{L}\p{N}_]+)(<=|>=|!=|[:<>=]))?(?:"([^"]*)"|'([^']*)'(?=\s|$)|(\S+))/gu;
const NO_VALUE = /^(\w+)(?:<=|>=|!=|[:<>=])$/;
const OPERATORS = new Set(["OR", "NOT", "||", "&&"]);

/** Terms of a query; what cannot be read, or names no field, is an error. */
export function terms(query: string): Term[] {
  return [...query.matchAll(TERM)].map(([raw, field, sign, double, single, plain]) => {
    if (plain && /^["']/.test(plain)) throw new SourceError("A quote is not closed.", "close the quotes");
    if (field === undefined) {
      checkWord(plain ?? "");
      if (plain !== undefined && Object.hasOwn(FLAG_WORDS, plain)) return { field: plain, sign: "", value: "", raw };
    } else if (!Object.hasOwn(FIELDS, field)) {
      throw new SourceError(`There is no field named “${field}”.`, `fields: ${FIELD_NAMES.join(" ")}; marks: ${MARKS.join(" ")}`);
    }
    return { field: field ?? "", sign: sign ?? "", value: double ?? single ?? plain ?? "", raw };
  });
}

/** Refuses what is meant as more than a word, and would find nothing as one. */
function checkWord(plain: string): void {
  const field = NO_VALUE.exec(plain)?.[1];
  if (field && Object.hasOwn(FIELDS, field)) {
    throw new SourceError(`“${plain}” has no value.`, `write ${plain}VALUE without a space, or "${plain}" for the word`);
  }
  if (OPERATORS.has(plain)) {
    throw new SourceError(`${plain} means nothing in a query.`, `all terms must hold, and != asks for others; write "${plain}" for the word`);
  }
}

/** The words of a query, to mark them in texts; none while it cannot be read. */
export function wordsOf(query: string): string[] {
  try { return terms(query).filter((term) => term.field === "").map((term) => term.value); } catch { return []; }
}

function isMark(term: Term): boolean {
  return term.field !== "" && term.sign === "";
}

/** Whether the arrays alone can answer a term. */
export function isInArrays(term: Term): boolean {
  return isMark(term) || IN_ARRAYS.has(term.field);
}

/** Whether a field is text, a number or a date. */
function known(term: Term): "text" | "number" | "date" {
  return FIELDS[term.field]!;
}

function numberOf(text: string): number {
  const found = /^(-?[\d.]+)([kmg]?)$/i.exec(text);
  const value = found ? Number(found[1]) * UNITS[found[2]!.toLowerCase()]! : NaN;
  if (Number.isNaN(value)) throw new SourceError(`“${text}” is not a number.`, "write 5, 0.5 or 5k");
  return value;
}

function compare(sign: string, wanted: number): (have: number) => boolean {
  switch (sign) {
    case "<": return (have) => have < wanted;
    case "<=": return (have) => have <= wanted;
    case ">": return (have) => have > wanted;
    case ">=": return (have) => have >= wanted;
    case "!=": return (have) => !Number.isNaN(have) && have !== wanted;
    default: return (have) => have === wanted;
  }
}

/** For each name whether it holds the wanted text: one look per name, not per event. */
function holding(names: (string | null)[], wanted: string): boolean[] {
  const low = wanted.toLowerCase();
  return names.map((name) => (name ?? "").toLowerCase().includes(low));
}

function textTest(term: Term, { about, columns }: Place): (i: number) => boolean {
  if (term.sign !== ":" && term.sign !== "=" && term.sign !== "!=") {
    throw new SourceError(`“${term.field}” is text, it cannot be compared.`, `write ${term.field}:${term.value}`);
  }
  const test = positiveTest(term, about, columns);
  return term.sign === "!=" ? (i) => !test(i) : test;
}

function positiveTest(term: Term, about: About, columns: Columns): (i: number) => boolean {
  switch (term.field) {
    case "id": return (i) => columns.ids[i] === term.value;
    case "agent": {
      const ok = holding(about.agents.map((a) => `${a.name}\n${a.label ?? ""}`), term.value);
      return (i) => ok[columns.agent[i]!] ?? false;
    }
    case "role": { const ok = holding(about.agents.map((a) => a.role), term.value); return (i) => ok[columns.agent[i]!] ?? false;
      }
    case "tool": { const ok = holding([null, ...about.tools], term.value); return (i) => ok[columns.tool[i]!] ?? false; }
    default: { const ok = about.types.map((type) => isKind(type, term.value)); return (i) => ok[columns.type[i]!] ?? false; }
  }
}

/** Whether a kind of event is meant by a word: how it begins, or one of its words. `spawn` is no `despawn`. */
function isKind(type: string, word: string): boolean {
  const low = word.toLowerCase();
  return type.startsWith(low) || type.split("_").includes(low);
}

function numberTest(term: Term, { about, columns, credit }: Place): (i: number) => boolean {
  const test = compare(term.sign, numberOf(term.value));
  const numbers = columns.numbers;
  switch (term.field) {
    case "tokens": return (i) => test(columns.tokens[i]! || NaN);
    case "cost": return (i) => test(columns.cost[i]! || NaN);
    case "seconds": return (i) => test(columns.dur[i]!);
    case "t": return (i) => test(columns.t[i]!);
    case "n": return (i) => test(numbers ? numbers[i]! : i);
    case "depth": return (i) => test(about.agents[columns.agent[i]!]?.depth ?? -1);
    case "credit": {
      if (!credit) throw new SourceError("No credit method is chosen.", "choose one in the Credit view (4)");
      return (i) => test(credit[numbers ? numbers[i]! : i] ?? NaN);
    }
    default: return (i) => test(columns.turn[i]! < 0 ? NaN : columns.turn[i]!);
  }
}

const AGO: Record<string, number> = { h: 3600, d: 86400, w: 7 * 86400, m: 30 * 86400 };

/** From when to before when a date is, in seconds, in the reader's time zone; of `7d` the moment so long ago. */
export function spanOf(text: string, now: number = Date.now() / 1000): [number, number] {
  const ago = /^(\d+)([hdwm])$/.exec(text);
  if (ago) { const at = now - Number(ago[1]) * AGO[ago[2]!]!; return [at, at]; }
  const day = /^(\d{4})(?:-(\d\d)(?:-(\d\d))?)?$/.exec(text);
  if (day) {
    const [y, m, d] = [Number(day[1]), Number(day[2] ?? 1) - 1, Number(day[3] ?? 1)];
    const begin = new Date(y, m, d);
    const end = day[3] ? new Date(y, m, d + 1) : day[2] ? new Date(y, m + 1, 1) : new Date(y + 1, 0, 1);
    if (begin.getMonth() === m && begin.getDate() === d) return [begin.getTime() / 1000, end.getTime() / 1000];
  }
  const minute = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?$/.exec(text);
  const at = minute ? Date.parse(text.replace(" ", "T")) / 1000 : NaN;
  if (Number.isNaN(at)) throw new SourceError(`“${text}” is not a date.`,
    "write a day as 2026-11-16, a minute as 2026-11-16T09:20, a month as 2026-11, or a span such as 7d or 12h");
  return [at, at + (minute![1] ? 1 : 60)];
}

/** The time that a term about dates names. */
function periodOf({ field, sign, value }: Term): [number, number] {
  const [begin, end] = spanOf(value);
  if (field !== "date") {
    if (sign !== ":" && sign !== "=") throw new SourceError(`“${field}${sign}${value}” is not a condition.`, `write ${field}:${value}`);
    if (field === "last" && begin !== end) throw new SourceError(`“${value}” is not a length of time.`, `last:7d, or since:${value}`);
    return field === "until" ? [-Infinity, end] : [begin, Infinity];
  }
  switch (sign) {
    case "<": return [-Infinity, begin];
    case "<=": return [-Infinity, end];
    case ">": return [end, Infinity];
    case ">=": return [begin, Infinity];
    default: return [begin, end];
  }
}

/** By the clock, as on the server: a call counts when it was made, everything else when it was complete. */
function dateTest(term: Term, { about, columns }: Place): (i: number) => boolean {
  const [begin, end] = periodOf(term);
  const zero = typeof about.started === "number" ? about.started - (about.start ?? 0) : NaN;
  const isAtOnce = about.types.map((type) => type === "tool_call" || type === "spawn");
  const clock = (i: number): number =>
    zero + columns.t[i]! + (isAtOnce[columns.type[i]!] ? 0 : Math.max(0, columns.dur[i]! || 0));
  return (i) => {
    const at = clock(i);
    return !Number.isNaN(at) && (at >= begin && at < end) !== (term.sign === "!=");
  };
}

/** What the arrays do not hold: whether event `i` says a word, and its fields; several scores are a list. */
export interface Beyond { says(i: number, word: string): boolean; field(i: number, name: string): unknown }
const NOTHING: Beyond = { says: () => false, field: () => null };

function beyondTest(term: Term, beyond: Beyond): (i: number) => boolean {
  if (known(term) === "number") {
    const test = compare(term.sign, numberOf(term.value));
    return (i) => [beyond.field(i, term.field)].flat().some((have) => typeof have === "number" && test(have));
  }
  const wanted = term.value.toLowerCase();
  return (i) => String(beyond.field(i, term.field) ?? "").toLowerCase().includes(wanted) !== (term.sign === "!=");
}

/** A test of the i-th event of the arrays for a term. */
export function testOf(term: Term, place: Place, beyond: Beyond): (i: number) => boolean {
  if (isMark(term)) {
    const bit = FLAG_WORDS[term.field]!;
    return (i) => (place.columns.flags[i]! & bit) !== 0;
  }
  if (term.field === "") { const word = term.value.toLowerCase(); return (i) => beyond.says(i, word); }
  if (!isInArrays(term)) return beyondTest(term, beyond);
  if (known(term) === "date") return dateTest(term, place);
  return known(term) === "text" ? textTest(term, place) : numberTest(term, place);
}

/** Places in the arrays that match every term. */
export function search(all: readonly Term[], place: Place, beyond: Beyond = NOTHING): number[] {
  const tests = all.map((term) => testOf(term, place, beyond));
  const found: number[] = [];
  for (let i = 0; i < place.columns.n; i++) if (tests.every((test) => test(i))) found.push(i);
  return found;
}
