// The spawn tree on the screen. Always true: rows are what `layout.ts` says; only rows near the screen are drawn; lines between
// agents are drawn for the agent under the pointer or, else, the selected one. Arrow keys as in any tree.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { compact, percent, signed, span } from "../numbers";
import { FLAGS } from "../shapes.gen";
import { columns, creditByAgent, hover, method, selectAgent, selectedAgent, trace } from "../state";
import { DASHES, Lines, ROW_PX } from "./Lines";
import { FOLD_OVER, linesOf, rowOfAgent, rowsOf, type LineKind, type Row } from "./layout";
import { MOST_NODES, Picture } from "./Picture";
import { move, sumOf } from "./tree";
import "./map.css";

const BEYOND = 12;

/** Agents that content from outside may have reached. */
function useTainted(): ReadonlySet<number> {
  const at = columns.value;
  return useMemo(() => {
    const found = new Set<number>();
    if (at) for (let i = 0; i < at.n; i++) if (at.flags[i]! & FLAGS.tainted) found.add(at.agent[i]!);
    return found;
  }, [at]);
}

/** Height and scroll place of the box, so that only rows in sight are drawn. */
function useSight(box: { current: HTMLElement | null }): { top: number; height: number } {
  const [sight, setSight] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = (): void => setSight({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    look();
    return () => { observer.disconnect(); element.removeEventListener("scroll", look); };
  }, []);
  return sight;
}

function LineChoice({ shown, onChange }: { shown: ReadonlySet<LineKind>; onChange: (next: Set<LineKind>) => void }) {
  const names: [LineKind, string][] = [["delegation", "spawn"], ["message", "message"], ["merge", "merge"], ["taint", "taint"]];
  const toggle = (kind: LineKind): void => {
    const next = new Set(shown);
    if (!next.delete(kind)) next.add(kind);
    onChange(next);
  };
  return (
    <fieldset class="map-lines-choice">
      <legend class="hidden">Lines between agents</legend>
      {names.map(([kind, text]) => (
        <label key={kind}>
          <input type="checkbox" checked={shown.has(kind)} onChange={() => toggle(kind)} />
          <svg width="16" height="8" aria-hidden="true"><path class={`line-${kind}`} d="M0 4h16" stroke-width="2"
            stroke-dasharray={DASHES[kind]} /></svg>{text}
        </label>
      ))}
    </fieldset>
  );
}

export default function AgentMap({ isWide = false }: { isWide?: boolean }) {
  const about = trace.value!.about;
  const at = columns.value;
  const box = useRef<HTMLDivElement>(null);
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set());
  const [shown, setShown] = useState<ReadonlySet<LineKind>>(new Set(["delegation", "message", "merge"]));
  const [cursor, setCursor] = useState(0);
  const rows = useMemo(() => rowsOf(about.agents, toggled), [about, toggled]);
  const places = useMemo(() => rowOfAgent(rows, about.agents), [rows]);
  const lines = useMemo(() => (at && !at.numbers ? linesOf(at, about.edge_types) : []), [at, about]);
  const tainted = useTainted();
  const sight = useSight(box);
  const chosen = selectedAgent.value >= 0 ? places[selectedAgent.value] ?? -1 : -1;
  const pointed = hover.value.agent >= 0 ? places[hover.value.agent] ?? -1 : -1;
  const focus = pointed >= 0 ? pointed : chosen;
  useEffect(() => { setToggled(new Set()); setCursor(0); }, [about.id]);
  useEffect(() => { if (chosen >= 0) { setCursor(chosen); reveal(box.current, chosen); } }, [chosen]);
  const toggle = (row: Row): void => {
    const next = new Set(toggled);
    if (!next.delete(row.key)) next.add(row.key);
    setToggled(next);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = move(event.key, rows, Math.min(cursor, rows.length - 1), toggle);
    if (next === null) return;
    event.preventDefault();
    setCursor(next);
    selectAgent(rows[next]!.agents[0]!);
    reveal(box.current, next);
  };
  const first = Math.max(0, Math.floor(sight.top / ROW_PX) - BEYOND);
  const end = Math.min(rows.length, Math.ceil((sight.top + sight.height) / ROW_PX) + BEYOND);
  const active = rows[Math.min(cursor, rows.length - 1)];
  return (
    <section class={isWide ? "map wide" : "map"} aria-label="Map of agents">
      <header class="panel-head"><h2>Map</h2><LineChoice shown={shown} onChange={(next) => setShown(next)} /></header>
      {about.agents.length > FOLD_OVER && <p
        class="quiet map-note">{about.agents.length.toLocaleString("en")} agents,
          folded by role and depth. Open a row to see its agents.</p>}
      {isWide && (
        <div class="map-heads" aria-hidden="true">
          <span>agent</span>{HEADS.map((head, i) => <span key={head} class={`number cell-${i}`}>{head}</span>)}<span
            class="number" title="credit by this method">{method.value ?? "credit"}</span>
        </div>
      )}
      <div ref={box} class="map-box" role="tree" aria-label="Agents" tabIndex={0} onKeyDown={onKeyDown}
        aria-activedescendant={active ? `agent-row-${cursor}` : undefined}
          onMouseLeave={() => { hover.value = { event: -1, agent: -1 }; }}>
        <div class="map-all" role="presentation" style={{ height: `${rows.length * ROW_PX}px` }}>
          {rows.slice(first, end).map((row, i) => (
            <TreeRow key={row.key} row={row} at={first + i} rows={rows} isWide={isWide} isChosen={chosen === first + i}
              isCursor={cursor === first + i}
              isTainted={row.agents.some((agent) => tainted.has(agent))} onToggle={() => toggle(row)} />
          ))}
          <Lines lines={lines} shown={shown} places={places} focus={focus} rows={rows.length} />
        </div>
      </div>
      {isWide && rows.length <= MOST_NODES && (
        <Picture rows={rows} tokens={rows.map((row) => sumOf(row, (i) => about.agents[i]!.tokens_own) ?? 0)} lines={lines}
          shown={shown} places={places}
          credits={rows.map((row) => sumOf(row, (i) => creditByAgent.value[i]))} focus={focus} chosen={chosen} />
      )}
      {about.is_large && <p class="quiet map-note">Lines between agents need all events; this trace is shown as a summary.</p>}
    </section>
  );
}

function reveal(box: HTMLElement | null, row: number): void {
  if (!box) return;
  const top = row * ROW_PX;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW_PX > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_PX - box.clientHeight;
}

const HEADS = ["own tok", "total tok", "busy", "path", "events"];

interface TreeRowProps {
  row: Row; at: number; rows: readonly Row[]; isWide: boolean; isChosen: boolean; isCursor: boolean; isTainted: boolean;
  onToggle: () => void;
}

function TreeRow({ row, at, rows, isWide, isChosen, isCursor, isTainted, onToggle }: TreeRowProps) {
  const agents = trace.value!.about.agents;
  const credit = sumOf(row, (i) => creditByAgent.value[i]);
  const sum = (of: (agent: (typeof agents)[number]) => number | null): number | null => sumOf(row, (i) => of(agents[i]!));
  const own = sum((one) => one.tokens_own) ?? 0;
  const whole = sum((one) => one.tokens_total);
  const role = agents[row.agents[0]!]!.role;
  const named = role && role !== row.label ? `${row.label} (${role})` : row.label;
  const title = `${named}: own ${compact(own)} tokens, with sub-agents ${compact(whole)}`;
  const classes = ["map-row", isChosen && "chosen", isCursor && "cursor", row.isOutside && "outside"].filter(Boolean).join(" ");
  return (
    <div id={`agent-row-${at}`} class={classes} role="treeitem" aria-level={row.depth + 1} aria-selected={isChosen}
      aria-expanded={row.hasChildren ? row.isOpen : undefined}
      style={{ top: `${at * ROW_PX}px`, paddingLeft: `${0.25 + row.depth * 1.1}rem` }}
      onClick={() => selectAgent(row.agents[0]!)} onMouseEnter={() => { hover.value = { event: -1, agent: row.agents[0]! }; }}
      title={title}>
      {row.depth > 0 && <Branch row={row} at={at} rows={rows} />}
      <span class="map-fold" aria-hidden="true"
        onClick={(event) => { event.stopPropagation(); if (row.hasChildren) onToggle(); }}>
        {row.hasChildren ? (row.isOpen ? "▾" : "▸") : ""}
      </span>
      <span class="map-name">{row.label}{isTainted && <span class="taint-mark"
        title="Content from outside may have reached it"> ▨</span>}
        {row.isOutside && <span class="quiet"> outside</span>}</span>
      {isWide
        ? [compact(own || null), compact(whole || null), span(sum((a) => a.busy_s)), percent(sum((a) => a.path_share)),
          compact(sum((a) => a.events)), signed(credit)]
          .map((text, i) => <span key={i}
            class={`number map-cell cell-${i} ${i === HEADS.length ? creditClass(credit) : ""}`}>{text}</span>)
        : <>
          <span class="number map-cell quiet">{own > 0 ? compact(own) : ""}</span>
          {credit !== null && <span class={`number map-cell ${creditClass(credit)}`}>{signed(credit)}</span>}
        </>}
    </div>
  );
}

function creditClass(value: number | null): string {
  return value === null || value === 0 ? "" : value > 0 ? "credit-up" : "credit-down";
}

/** The elbow that joins a row to its parent, up to the sibling above. */
function Branch({ row, at, rows }: { row: Row; at: number; rows: readonly Row[] }) {
  let above = at - 1;
  while (above > row.parent && rows[above]!.parent !== row.parent) above--;
  // Under the parent itself the line begins below its name, not behind it.
  const skip = above === row.parent ? ROW_PX / 2 - 3 : 0;
  const height = (at - above) * ROW_PX - skip;
  return <span class="map-branch" aria-hidden="true"
    style={{ left: `${0.75 + (row.depth - 1) * 1.1}rem`, top: `${ROW_PX / 2 - height}px`, height: `${height}px` }} />;
}
