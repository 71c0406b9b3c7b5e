// The search language over the arrays of a trace: words and fields, `kind:spawn agent:coder tokens>5k credit<0 tainted "merge"`.
// Always true: terms are joined by and; an unknown field is an error, never an empty list. Words need text, which is not in the
// arrays: who calls says where text comes from.
import type { About } from "./shapes.gen";
import { FLAGS } from "./shapes.gen";
import { SourceError, type Columns } from "./source";

export interface Term { field: string; sign: string; value: string }
export interface Place { about: About; columns: Columns; credit: Float32Array | null }

const FLAG_WORDS: Record<string, number> = { ...FLAGS, path: FLAGS.on_path, error: FLAGS.failed };
const TEXT_FIELDS = ["id", "kind", "type", "agent", "role", "tool"];
const NUMBER_FIELDS = ["tokens", "cost", "seconds", "t", "turn", "step", "credit", "n", "depth"];
export const FIELD_NAMES = [...TEXT_FIELDS, ...NUMBER_FIELDS];
const UNITS: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9 };

/** Terms of a query. A bare word has the field "". */
export function terms(query: string): Term[] {
  const found = [...query.matchAll(/(?:(\w+)(<=|>=|!=|[:<>=]))?(?:"([^"]*)"|(\S+))/g)];
  return found.map(([, field, sign, quoted, plain]) => {
    const value = quoted ?? plain ?? "";
    if (!field && quoted === undefined && value in FLAG_WORDS) return { field: "flag", sign: ":", value };
    return { field: field ?? "", sign: sign ?? ":", value };
  });
}

/** Whether the arrays alone can answer. */
export function isStructural(found: Term[]): boolean {
  return found.every((term) => term.field !== "");
}

function numberOf(text: string): number {
  const found = /^(-?[\d.]+)([kmg]?)$/i.exec(text);
  const value = found ? Number(found[1]) * UNITS[found[2]!.toLowerCase()]! : NaN;
  if (Number.isNaN(value)) throw new SourceError(`“${text}” is not a number.`, "write 5, 0.5 or 5k; use : to match text");
  return value;
}

function compare(sign: string, wanted: number): (have: number) => boolean {
  switch (sign) {
    case "<": return (have) => have < wanted;
    case "<=": return (have) => have <= wanted;
    case ">": return (have) => have > wanted;
    case ">=": return (have) => have >= wanted;
    case "!=": return (have) => have !== wanted;
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
    case "agent": { const ok = holding(about.agents.map((a) => a.name), term.value); return (i) => ok[columns.agent[i]!] ?? false; }
    case "role": { const ok = holding(about.agents.map((a) => a.role), term.value); return (i) => ok[columns.agent[i]!] ?? false; }
    case "tool": { const ok = holding([null, ...about.tools], term.value); return (i) => ok[columns.tool[i]!] ?? false; }
    default: { const ok = holding(about.types, term.value); return (i) => ok[columns.type[i]!] ?? false; }
  }
}

function numberTest(term: Term, { about, columns, credit }: Place): (i: number) => boolean {
  const test = compare(term.sign, numberOf(term.value));
  const numbers = columns.numbers;
  switch (term.field) {
    case "tokens": return (i) => test(columns.tokens[i]!);
    case "cost": return (i) => test(columns.cost[i]!);
    case "seconds": return (i) => test(columns.dur[i]!);
    case "t": return (i) => test(columns.t[i]!);
    case "n": return (i) => test(numbers ? numbers[i]! : i);
    case "depth": return (i) => test(about.agents[columns.agent[i]!]?.depth ?? -1);
    case "credit": {
      if (!credit) throw new SourceError("No credit method is chosen.", "choose one in the Credit view (4)");
      return (i) => test(credit[numbers ? numbers[i]! : i] ?? NaN);
    }
    default: return (i) => test(columns.turn[i]!);
  }
}

/** A test of the i-th event of the arrays for a term. `says` tells whether the text of event `i` holds a word. */
export function testOf(term: Term, place: Place, says: (i: number, word: string) => boolean): (i: number) => boolean {
  if (term.field === "flag") {
    const bit = FLAG_WORDS[term.value]!;
    return (i) => (place.columns.flags[i]! & bit) !== 0;
  }
  if (term.field === "") { const word = term.value.toLowerCase(); return (i) => says(i, word); }
  if (TEXT_FIELDS.includes(term.field)) return textTest(term, place);
  if (NUMBER_FIELDS.includes(term.field)) return numberTest(term, place);
  throw new SourceError(`No field named “${term.field}”.`, `fields: ${FIELD_NAMES.join(", ")}; words: ${Object.keys(FLAGS).join(", ")}`);
}

/** Places in the arrays that match every term. */
export function search(query: string, place: Place, says: (i: number, word: string) => boolean = () => false): number[] {
  const tests = terms(query).map((term) => testOf(term, place, says));
  const found: number[] = [];
  for (let i = 0; i < place.columns.n; i++) if (tests.every((test) => test(i))) found.push(i);
  return found;
}
