// Two traces side by side. Always true: every row says what became of it in a sign and a word; where they part first is said
// first; each side opens its event.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { agentsOf, type DiffItem, edit, folded, nextChange } from "../difffold";
import { onCommand } from "../keys";
import { useListKeys } from "../listkeys";
import { useLoaded, Waiting } from "../loaded";
import { change, compact, count, money, plain, signed, span } from "../numbers";
import { familyOf, glyphOf } from "../palette";
import { Plain } from "../plaintext";
import { traceLink } from "../router";
import { Link } from "../shell/Link";
import { Failure, Steered } from "../shell/states";
import type { Diff as Found, DiffRow } from "../shapes.gen";
import { go, route, source } from "../state";
import { Windowed } from "../windowed";
import "./pages.css";

const WORDS: Record<string, [string, string]> = {
  same: ["=", "same"], edited: ["✎", "edited"], changed: ["~", "changed"], "only-a": ["−", "only in A"],
    "only-b": ["+", "only in B"],
};

export default function Diff() {
  const at = route.value;
  if (at.page !== "diff") return null;
  return at.a && at.b ? <Two key={`${at.a}..${at.b}`} a={at.a} b={at.b} /> : <Choose a={at.a} b={at.b} />;
}

/** Which two: from the list, or typed. */
function Choose(props: { a: string; b: string }) {
  const [a, setA] = useState(props.a);
  const [b, setB] = useState(props.b);
  const list = useLoaded("traces", "", () => source.value!.traces(""));
  return (
    <form class="state" onSubmit={(event) => { event.preventDefault(); if (a && b) go({ page: "diff", a, b }); }}>
      <h1>Compare two traces</h1>
      <p class="quiet">Give the ids of two traces, or pick two rows in <Link to={{ page: "traces", query: "" }}>Traces</Link>.</p>
      <label>A <input list="all-traces" placeholder="id of a trace" value={a} onInput={(event) => setA(event.currentTarget.value)} /></label>
      <label>B <input list="all-traces" placeholder="id of another" value={b} onInput={(event) => setB(event.currentTarget.value)} /></label>
      <datalist id="all-traces">{(list.data?.rows ?? []).slice(0, 500).map((row) => <option key={row.id} value={row.id}>{row.title ?? ""}</option>)}
        </datalist>
      <button type="submit" class="main" disabled={!a || !b || a === b}>Compare</button>
    </form>
  );
}

function Two(props: { a: string; b: string }) {
  const { data, problem } = useLoaded(`${props.a}..${props.b}`, "", () => source.value!.diff(props.a, props.b));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Aligning the two traces" />;
  return <Aligned diff={data} />;
}

function Aligned(props: { diff: Found }) {
  const { diff } = props;
  const [onlyChanges, setOnly] = useState(true);
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const [at, setAt] = useState(-1);
  const box = useRef<HTMLDivElement>(null);
  const items = useMemo(() => folded(diff.rows, onlyChanges, 1, opened), [diff, onlyChanges, opened]);
  const cursor = useListKeys(box, items.length, `${diff.a}..${diff.b} ${onlyChanges}`);
  const change = useMemo(() => (at < 0 ? null : { row: items.findIndex((item) => holds(item, at)) }), [at, items]);
  const step = (by: 1 | -1) => { const next = nextChange(diff.rows, at, by); if (next >= 0) setAt(next); };
  useEffect(() => {
    const ends = [onCommand("alert-next", () => step(1)), onCommand("alert-previous", () => step(-1))];
    return () => ends.forEach((end) => end());
  });
  return (
    <div class="diff">
      <Head diff={diff} onFirst={() => setAt(diff.first)} />
      <div class="page-head">
        <label class="switch">
          <input type="checkbox" checked={onlyChanges}
            onChange={() => { setOnly(!onlyChanges); setOpened(new Set()); }} /> only changes</label>
        <button type="button" onClick={() => step(-1)} title="Previous change (,)">↑ change</button>
        <button type="button" onClick={() => step(1)} title="Next change (.)">↓ change</button>
        <span class="quiet">aligned by agent and content · {count(diff.same,
          "event")} same, {diff.different.toLocaleString("en")} differ</span>
      </div>
      <div ref={box} class="grid-table" role="table" aria-label="Events of both traces" aria-rowcount={items.length + 1}>
        <div class="diff-row grid-head" role="row">
          <span role="columnheader">A</span><span role="columnheader">B</span><span role="columnheader">what</span>
            <span role="columnheader">text</span>
        </div>
        <Windowed isTable label="Events of both traces" listKey={String(onlyChanges)} count={items.length} estimate={32}
          show={useLatest(change, cursor.show)}
          render={(i) =>
            <Item item={items[i]!} index={i} diff={diff} at={at} isAt={i === cursor.at} onOpen={(from) => setOpened(new Set([...opened, from]))} />} />
      </div>
    </div>
  );
}

/** The place that was asked for last: by the buttons, or by J and K. */
function useLatest(a: { row: number } | null, b: { row: number } | null): { row: number } | null {
  const before = useRef<[unknown, unknown]>([null, null]);
  const shown = useRef<{ row: number } | null>(null);
  if (a !== before.current[0]) shown.current = a;
  if (b !== before.current[1]) shown.current = b;
  before.current = [a, b];
  return shown.current;
}

function holds(item: DiffItem, row: number): boolean {
  return item.kind === "row" ? item.row === row : item.from <= row && row < item.to;
}

function Head(props: { diff: Found; onFirst: () => void }) {
  const { diff } = props;
  const [rewardA, rewardB] = diff.sums["reward"] ?? [null, null];
  const first = diff.rows[diff.first];
  return (
    <header class="diff-head">
      <h1 class="hidden">Difference of two traces</h1>
      <div class="sides">
        <p><strong>A</strong> <Link to={traceLink(diff.a)}><bdi>{diff.a}</bdi></Link> <span class="badge">R {plain(rewardA)}
          </span> {diff.steered.includes(diff.a) && <Steered />}</p>
        <p><strong>B</strong> <Link to={traceLink(diff.b)}><bdi>{diff.b}</bdi></Link> <span class="badge">R {plain(rewardB)}
          </span> {diff.steered.includes(diff.b) && <Steered />}</p>
      </div>
      <p>
        {first ? <>first divergence{" "}
          <button type="button" class="chip" onClick={props.onFirst}>
            {nameOf(first)} <bdi>{first.agent}</bdi> ({WORDS[first.what]?.[1] ?? first.what})</button></>
          : "The two traces have the same events."}
      </p>
      <Sums diff={diff} />
    </header>
  );
}

const nameOf = (row: DiffRow) => `${row.type.replaceAll("_", " ")} #${row.a >= 0 ? row.a : row.b}`;

/** What it came to: tokens, time, cost, reward; and the agents whose tokens moved most. */
function Sums(props: { diff: Found }) {
  const { sums, agents } = props.diff;
  const pair = (name: string) => (sums[name] ?? [null, null]) as [number | null, number | null];
  const [tokens, seconds, cost, reward] =
    ["tokens", "seconds", "cost_usd", "reward"].map(pair) as [number | null, number | null][];
  const less = ([a, b]: [number | null, number | null]) => (a === null || b === null ? null : b - a);
  const moved = Object.entries(agents).map(([name, [a = 0, b = 0]]) => [name, b - a] as const)
    .filter(([, by]) => by !== 0).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]));
  return (
    <p class="sums">
      <span>Σ tokens {change(...tokens!)} <span class="quiet">({compact(tokens![0])} → {compact(tokens![1])})</span></span>
      <span>time {plus(less(seconds!), span)}</span>
      <span>cost {plus(less(cost!), money)}</span>
      <span>R {less(reward!) === 0 ? "same" : signed(less(reward!))}</span>
      {moved.length > 0 &&
        <span>tokens by agent: {moved.slice(0, 5).map(([name, by]) =>
          <span key={name} class="moved"><bdi>{name}</bdi> {plus(by, compact)}</span>)}
        {moved.length > 5 && <span class="quiet"> and {moved.length - 5} more</span>}</span>}
    </p>
  );
}

const plus = (value: number | null, show: (value: number | null) => string) =>
  (value !== null && value > 0 ? "+" : "") + show(value);

function Item(props: { item: DiffItem; index: number; diff: Found; at: number; isAt: boolean; onOpen: (from: number) => void }) {
  const { item, diff } = props;
  if (item.kind === "row") {
    return <Row row={diff.rows[item.row]!} index={props.index} diff={diff} isAt={item.row === props.at || props.isAt} />;
  }
  const who = agentsOf(diff.rows, item.from, item.to);
  const [sign, word] = WORDS[item.what] ?? ["?", item.what];
  return (
    <div class={`diff-fold what-${item.what}${props.isAt ? " is-at" : ""}`} role="row" aria-rowindex={props.index + 2}>
      <span role="cell">
        <button type="button" class="crumb" onClick={() => props.onOpen(item.from)}>
          {sign} {count(item.to - item.from,
            item.what === "same" ? "event" : "more event")} {word} <span
              class="quiet">({who.slice(0, 3).map(([name, many]) => `${name} ${many}`).join(", ")}
            {who.length > 3 ? `, ${count(who.length - 3, "more agent")}` : ""})</span> show
        </button>
      </span>
    </div>
  );
}

function Row(props: { row: DiffRow; index: number; diff: Found; isAt: boolean }) {
  const { row, diff } = props;
  const [sign, word] = WORDS[row.what] ?? ["?", row.what];
  return (
    <div class={`diff-row what-${row.what}${props.isAt ? " is-selected" : ""}`} role="row" aria-rowindex={props.index + 2}>
      <span role="cell"><Side n={row.a} id={diff.a} row={row} /></span>
      <span role="cell"><Side n={row.b} id={diff.b} row={row} /></span>
      <span role="cell" class="what"><b aria-hidden="true">{sign}</b> {word}</span>
      <span role="cell" class="diff-text"><Change row={row} /></span>
    </div>
  );
}

function Side(props: { n: number; id: string; row: DiffRow }) {
  const { n, row } = props;
  if (n < 0) return <span class="quiet" aria-label="not there">·</span>;
  return (
    <Link to={traceLink(props.id, { event: `~${n}`, view: "text" })} class="diff-side">
      <span class={`glyph family-${familyOf(row.type)}`} aria-hidden="true">{glyphOf(row.type)}</span>
      <span>#{n} {row.type.replaceAll("_", " ")}</span> <span class="quiet"><bdi>{row.agent}</bdi></span>
    </Link>
  );
}

/** The text, or what changed in it. */
function Change(props: { row: DiffRow }) {
  const { row } = props;
  if (row.what === "same"
    || row.before === row.after) return <span class="quiet one-line"><Plain text={row.before || row.after} /></span>;
  if (row.what === "only-a") return <del><Plain text={row.before} /></del>;
  if (row.what === "only-b") return <ins><Plain text={row.after} /></ins>;
  const found = edit(row.before, row.after);
  return (
    <>
      <span class="quiet"><Plain text={found.head} /></span>
      {found.removed && <del>− <Plain text={found.removed} /></del>}{" "}
      {found.added && <ins>+ <Plain text={found.added} /></ins>}
      <span class="quiet"><Plain text={found.tail} /></span>
    </>
  );
}
