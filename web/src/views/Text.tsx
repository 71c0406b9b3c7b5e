// The transcript: of one agent, of an agent with all below it, or of everybody in order of time, with sub-agents inline. Always
// true: it is windowed; text that was cut says how much is missing and loads; long text is folded until it is opened; what came from
// outside is hatched in the margin, never under its text.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { bytes, compact, count, span } from "../numbers";
import { familyColour, familyOf, glyphOf, TAINT_GLYPH } from "../palette";
import { onCommand } from "../keys";
import { Folded } from "../rich";
import { wordsOf } from "../search";
import { FLAGS, type TalkRow } from "../shapes.gen";
import type { SourceError } from "../source";
import {
  agentName, columns, mask, query, rowOf, selectAgent, selectedAgent, selectedEvent, selectEvent, shade, source, trace,
} from "../state";
import { asProblem, Waiting } from "../loaded";
import { Failure } from "../shell/states";
import { findRow, guessRow, lineage, Pages, type Scope } from "../talk";
import { Windowed } from "../windowed";
import "./views.css";

const EVERYBODY: Scope = { agent: -1, tree: false };

export default function Text() {
  const current = trace.value!;
  const scope = useSignal<Scope>(selectedAgent.peek() >= 0 && selectedEvent.peek() < 0
    ? { agent: selectedAgent.peek(), tree: true } : EVERYBODY);
  // An agent chosen elsewhere brings its text; an event chosen anywhere only moves the place.
  useSignalEffect(() => {
    const agent = selectedAgent.value;
    if (agent >= 0 && selectedEvent.peek() < 0 && scope.peek().agent !== agent) scope.value = { agent, tree: true };
  });
  const words = useComputed(() => wordsOf(query.value));
  const { agent, tree } = scope.value;
  return (
    <section class="talk" aria-label="Text">
      <Head scope={scope.value} onScope={(next) => (scope.value = next)} />
      <Rows key={`${current.id}/${agent}/${tree}`} scope={scope.value} words={words.value}
        onOpen={(next) => { selectAgent(next); scope.value = { agent: next, tree: true }; }} />
    </section>
  );
}

/** Where we are in the tree, the way back, and the three widths. */
function Head(props: { scope: Scope; onScope: (scope: Scope) => void }) {
  const { about } = trace.value!;
  const { agent, tree } = props.scope;
  const way = lineage(about, agent);
  const shown = agent < 0 ? "everybody" : tree ? "subtree" : "agent";
  const widths: [string, string, Scope][] = [
    ["agent", "this agent", { agent, tree: false }], ["subtree", "with sub-agents", { agent, tree: true }],
      ["everybody", "all agents", EVERYBODY],
  ];
  return (
    <header class="talk-head">
      <nav aria-label="Whose text">
        <button type="button" class="crumb" onClick={() => props.onScope(EVERYBODY)} aria-current={agent < 0}>all</button>
        {way.map((one) => (
          <span key={one}>
            <span aria-hidden="true" class="quiet"> › </span>
            <button type="button" class="crumb" aria-current={one === agent}
              onClick={() => props.onScope({ agent: one, tree: true })}>
              <bdi>{agentName(one)}</bdi>
            </button>
          </span>
        ))}
      </nav>
      <div class="chips" role="group" aria-label="Width">
        {widths.map(([name, label, scope]) => (
          <button key={name} type="button" class="chip" aria-pressed={shown === name} disabled={agent < 0 && name !== "everybody"}
            onClick={() => props.onScope(scope)}>{label}</button>
        ))}
      </div>
      <Matches />
    </header>
  );
}

/** How many events the search found, and the way from one to the next. */
function Matches() {
  const found = mask.value;
  const all = useMemo(() => (found ? [...found.keys()].filter((n) => found[n]) : []), [found]);
  if (!found) return null;
  const at = selectedEvent.value;
  const place = all.indexOf(at);
  const step = (by: 1 | -1) => {
    const next = by > 0 ? all.find((n) => n > at) ?? all[0] : all.findLast((n) => n < at) ?? all.at(-1);
    if (next !== undefined) selectEvent(next);
  };
  return (
    <span class="matches" role="status">
      {place >= 0 ? `${place + 1} of ` : ""}{count(all.length, "match", "matches")}
      <button type="button" aria-label="Previous match" disabled={!all.length} onClick={() => step(-1)}>↑</button>
      <button type="button" aria-label="Next match" disabled={!all.length} onClick={() => step(1)}>↓</button>
    </span>
  );
}

function Rows(props: { scope: Scope; words: string[]; onOpen: (agent: number) => void }) {
  const { id, about } = trace.value!;
  const [, redraw] = useReducer<number, void>((n) => n + 1, 0);
  const [problem, setProblem] = useState<SourceError | null>(null);
  const [show, setShow] = useState<{ row: number } | null>(null);
  const pages = useMemo(() => new Pages(source.value!, id, props.scope, redraw), []);
  useEffect(() => {
    let isHere = true;
    pages.page(0).catch((error: unknown) => isHere && setProblem(asProblem(error)));
    return () => { isHere = false; };
  }, []);
  const wanted = selectedEvent.value;
  useEffect(() => {
    if (wanted < 0 || pages.total <= 0) return;
    let isHere = true;
    const guess = guessRow(columns.peek(), about, props.scope, wanted, pages.total);
    findRow(pages.total, guess, wanted, (row) => pages.at(row)).then((row) => isHere && setShow({ row }), () => undefined);
    return () => { isHere = false; };
  }, [wanted, pages.total]);
  // Rows that were opened stay open while they are scrolled out of sight and back.
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const onOpen = (n: number, isOpen: boolean) => setOpened((old) => new Set(isOpen ? [...old, n] : [...old].filter((one) => one !== n)));
  useRowKeys(pages, show?.row ?? -1, (n) => onOpen(n, !opened.has(n)));
  if (problem) return <Failure error={problem} />;
  if (pages.total < 0) return <Waiting what="Reading the text" />;
  if (!pages.total) return <p class="nothing">There are no events here.</p>;
  return (
    <Windowed class="talk-rows" label="Transcript" listKey={id} count={pages.total} estimate={76} show={show}
      onRange={(from, to) => pages.want(from, to)}
      render={(i) => {
        const row = pages.row(i);
        return row ? <Row row={row} words={props.words} inside={props.scope} onOpen={props.onOpen} isUnfolded={opened.has(row.n)}
          onUnfold={(isOpen) => onOpen(row.n, isOpen)} />
          : <div class="talk-row quiet">…</div>;
      }} />
  );
}

/** J and K go to the next and the previous row, Enter opens and folds it. */
function useRowKeys(pages: Pages, row: number, onToggle: (n: number) => void): void {
  // keys come faster than rows are found: the place is counted here, and set anew when another event is selected
  const now = useRef({ row, onToggle });
  now.current.onToggle = onToggle;
  useEffect(() => { if (pages.row(now.current.row)?.n !== selectedEvent.peek()) now.current.row = row; }, [row]);
  useEffect(() => {
    const step = (by: 1 | -1) => () => {
      const next = Math.max(0, Math.min(pages.total - 1, now.current.row + by));
      now.current.row = next;
      const known = pages.row(next);
      if (known) selectEvent(known.n);
      else if (pages.total > 0) void pages.at(next).then(selectEvent, () => undefined);
    };
    const ends = [onCommand("list-next", step(1)), onCommand("list-previous", step(-1)),
      onCommand("list-open", () => { if (selectedEvent.peek() >= 0) now.current.onToggle(selectedEvent.peek()); })];
    return () => ends.forEach((end) => end());
  }, [pages]);
}

interface RowProps {
  row: TalkRow;
  words: string[];
  inside: Scope;
  onOpen: (agent: number) => void;
  isUnfolded: boolean;
  onUnfold: (isOpen: boolean) => void;
}

function Row(props: RowProps) {
  const { row } = props;
  const { about } = trace.value!;
  const base = props.inside.agent < 0 ? 0 : about.agents[props.inside.agent]?.depth ?? 0;
  const deep = Math.max(0, Math.min(8, (about.agents[row.agent]?.depth ?? row.depth) - base));
  const isOut = mask.value !== null && !mask.value[row.n];
  const at = rowOf(row.n);
  const flags = at < 0 ? 0 : columns.value!.flags[at]!;
  const classes = ["talk-row", row.n === selectedEvent.value && "is-selected", isOut && "is-out",
    row.trusted === false && "is-untrusted"];
  return (
    <article class={classes.filter(Boolean).join(" ")}
      style={{ marginInlineStart: `${deep * 20}px`, "--family": familyColour(familyOf(row.type), shade.value) }}
      onClick={() => selectEvent(row.n)} aria-current={row.n === selectedEvent.value}>
      <header>
        <span class="glyph" aria-hidden="true">{glyphOf(row.type)}</span>
        <button type="button" class="crumb who" onClick={(event) => { event.stopPropagation(); props.onOpen(row.agent); }}>
          <bdi>{agentName(row.agent)}</bdi>
        </button>
        <button type="button" class="crumb kind" onClick={() => selectEvent(row.n)}>
          {row.type.replaceAll("_", " ")}{row.tool && <> <code><bdi>{row.tool}</bdi></code></>}
        </button>
        {row.to >= 0 && (
          <span>→ <button type="button" class="crumb who" onClick={(event) => { event.stopPropagation(); props.onOpen(row.to); }}>
            <bdi>{agentName(row.to)}</bdi>
          </button></span>
        )}
        {row.trusted === false && <span class="badge taint">{TAINT_GLYPH} untrusted</span>}
        {row.trusted !== false && (flags & FLAGS.tainted) !== 0 && <span class="badge taint">{TAINT_GLYPH} tainted</span>}
        {row.ok === false && <span class="badge bad">✕ failed</span>}
        <span class="quiet end">{row.tokens !== null && `${compact(row.tokens)} tok · `}{span(row.t)}</span>
      </header>
      <Body row={row} words={props.words} isUnfolded={props.isUnfolded} onUnfold={props.onUnfold} />
    </article>
  );
}

/** The text; where it was cut, how much is here, and a button for the rest. */
function Body(props: Pick<RowProps, "row" | "words" | "isUnfolded" | "onUnfold">) {
  const { row } = props;
  const [more, setMore] = useState<{ text: string; isCut: boolean } | null>(null);
  const [problem, setProblem] = useState<SourceError | null>(null);
  const text = more?.text ?? row.text;
  const isCut = more ? more.isCut : row.is_cut;
  const load = async () => {
    try {
      const detail = await source.value!.event(trace.value!.id, row.n, more !== null);
      setMore({ text: detail.text ?? "", isCut: detail.is_cut });
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  if (!text && !isCut) return null;
  return (
    <div class="talk-body" dir="auto">
      <Folded text={text} words={props.words} isResult={row.type === "tool_result"} isOpen={props.isUnfolded || more !== null}
        onOpen={props.onUnfold} />
      {isCut && (props.isUnfolded || more !== null) && (
        <p class="cut">
          [cut: {bytes(text.length)} of {bytes(row.text_size)}]{" "}
          <button type="button" onClick={(event) => { event.stopPropagation(); void load(); }}>{more ? "load all" : "load"}
            </button>
        </p>
      )}
      {problem && <Failure error={problem} />}
    </div>
  );
}
