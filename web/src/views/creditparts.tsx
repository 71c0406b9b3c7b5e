// Parts of the credit view: the bar that must close, agents, the table of what earned what, the heat strip of tokens. Always
// true: credit is shown by a printed sign and a thickness beside its hue, and every value leads to its event or agent.
import { useRef } from "preact/hooks";
import { barParts, bySize, type Closing, closing, tokensByEvent } from "../creditmath";
import { useListKeys } from "../listkeys";
import { plain, signed } from "../numbers";
import { creditColour, creditLine, inkOn } from "../palette";
import type { Credit, CreditRow } from "../shapes.gen";
import { agentName, eventName, selectAgent, selectedAgent, selectedEvent, selectEvent, shade, trace } from "../state";
import { shortId } from "../shell/EventId";
import { Windowed } from "../windowed";

/** An agent as the map calls it. */
function nameOf(agent: string): string {
  return trace.value!.about.agents.find((one) => one.name === agent)?.label || agent;
}

/** The team's reward as a bar of its parts, and the sum beside it. */
export function SumBar(props: { credit: Credit }) {
  const found = closing(props.credit);
  const { parts, zero } = barParts(props.credit);
  return (
    <div class="sum">
      <div class="sum-bar" role="img"
        aria-label={parts.map((part) => `${part.label} ${signed(part.value)}`).join(", ") || "nothing"}>
        {parts.map((part) => {
          const colour = part.label === "unassigned" ? "var(--ground-3)" : creditColour(Math.sign(part.value), 1, shade.value);
          const isWide = part.to - part.from > 0.09;
          return (
            <span key={part.label} class={part.label === "unassigned" ? "sum-part is-nobody" : "sum-part"}
              title={`${part.label === "unassigned" ? part.label : nameOf(part.label)} ${signed(part.value, 4)}`}
              style={{ left: `${part.from * 100}%`, width: `${(part.to - part.from) * 100}%`, background: colour,
                ...(part.label === "unassigned" ? {} : { color: inkOn(colour) }) }}>
              {isWide && <bdi>{part.label === "unassigned" ? part.label : nameOf(part.label)}</bdi>}
            </span>
          );
        })}
        <span class="sum-zero" style={{ left: `${zero * 100}%` }} />
      </div>
      <SumLine found={found} whole={props.credit.whole} />
    </div>
  );
}

function SumLine(props: { found: Closing; whole: string }) {
  const { state, sum, agents, nobody, target, difference } = props.found;
  if (state === "none") return <p class="quiet">Nothing to add up.</p>;
  if (state === "own") {
    return <p>own total {plain(sum,
      4)} <span class="quiet">not additive: it need not add up to the team's reward{target !== null && ` (R ${plain(target, 4)})`}
        </span></p>;
  }
  if (state
    === "closes") return <p>{props.whole === "R" ? `R ${plain(target, 4)}` : "whole result 1"} = agents {plain(agents, 4)} + unassigned {plain(nobody,
      4)} <span class="ok">✓ adds up</span></p>;
  return (
    <p class="broken" role="alert">
      ✕ The sum does not add up: agents and unassigned make {plain(sum, 6)}, the team's reward is {plain(target,
        6)}, difference {signed(difference, 6)}.
      Do not trust this credit.
    </p>
  );
}

/** Agents with their credit; the one nobody got last. */
export function Agents(props: { credit: Credit; scale: number }) {
  const { about } = trace.value!;
  const all = bySize(props.credit);
  if (!all.length) return null;
  return (
    <ul class="earners" aria-label={`Credit by agent, ${props.credit.method}`}>
      {all.slice(0, MOST_AGENTS).map(([name, value]) => {
        const agent = about.agents.findIndex((one) => one.name === name);
        return (
          <li key={name}>
            <button type="button" class="earner" aria-pressed={agent >= 0 && agent === selectedAgent.value} disabled={agent < 0}
              onClick={() => selectAgent(agent)}>
              <bdi>{about.agents[agent]?.label || name}</bdi> <Value value={value} scale={props.scale} />
            </button>
          </li>
        );
      })}
      {all.length > MOST_AGENTS &&
        <li class="quiet">and {all.length - MOST_AGENTS} more, each below {plain(Math.abs(all[MOST_AGENTS - 1]![1]))}</li>}
      {props.credit.unassigned !== null &&
        <li><span class="earner quiet">unassigned <Value value={props.credit.unassigned} scale={props.scale} /></span></li>}
    </ul>
  );
}

const MOST_AGENTS = 40;

/** A value with its sign, underlined by size. */
export function Value(props: { value: number | null; scale: number; places?: number }) {
  if (props.value === null) return <span class="quiet" title="no credit given; that is not zero">–</span>;
  const line = creditLine(props.value, props.scale);
  return (
    <span class="value" style={{ borderBottom: `${line}px solid ${creditColour(Math.sign(props.value), 1, shade.value)}` }}>
      {signed(props.value, props.places ?? 2)}
    </span>
  );
}

export interface Pair {
  row: CreditRow;
  values: (CreditRow | null)[];
}

/** What earned what: a row for each thing, a column for each method. */
export function CreditTable(props: { pairs: Pair[]; methods: string[]; scale: number; unit: string }) {
  const hasAgent = props.unit !== "agent" && props.unit !== "team" && props.unit !== "role";
  const columns = `minmax(8rem, 2fr) ${hasAgent ? "minmax(5rem, 0.8fr) "
    : ""}repeat(${props.methods.length}, minmax(8rem, 1.4fr))`;
  const listKey = `${props.unit}/${props.methods.join()}`;
  const box = useRef<HTMLDivElement>(null);
  const cursor = useListKeys(box, props.pairs.length, listKey);
  return (
    <div ref={box} class="credit-table" role="table" aria-label={`Credit by ${props.unit}`} aria-rowcount={props.pairs.length + 1}>
      <div class="grid-row grid-head" role="row" style={{ gridTemplateColumns: columns }}>
        <span role="columnheader">{props.unit}</span>
        {hasAgent && <span role="columnheader">agent</span>}
        {props.methods.map((method) => <span key={method} role="columnheader">{method}</span>)}
      </div>
      <Windowed isTable label={`Credit by ${props.unit}`} listKey={listKey}
        count={props.pairs.length} estimate={30} show={cursor.show}
        render={(i) => <TableRow pair={props.pairs[i]!} index={i} scale={props.scale} columns={columns} hasAgent={hasAgent} isAt={i === cursor.at} />} />
    </div>
  );
}

function TableRow(props: { pair: Pair; index: number; scale: number; columns: string; hasAgent: boolean; isAt: boolean }) {
  const { row, values } = props.pair;
  const isSelected = row.event >= 0 ? row.event === selectedEvent.value : row.agent >= 0 && row.agent === selectedAgent.value;
  const open = () => (row.event >= 0 ? selectEvent(row.event) : row.agent >= 0 && selectAgent(row.agent));
  const isOpen = row.event >= 0 || row.agent >= 0;
  const name = row.event < 0 && row.agent >= 0 && !props.hasAgent ? agentName(row.agent) : shortId(row.label);
  return (
    <div class={["grid-row", isSelected && "is-selected", props.isAt && "is-at"].filter(Boolean).join(" ")} role="row" aria-rowindex={props.index + 2}
      style={{ gridTemplateColumns: props.columns }} onClick={open}>
      <span role="cell">
        {isOpen ? <button type="button" class="crumb" onClick={open} title={row.label}><bdi>{name}</bdi></button> : <bdi>{row.label}</bdi>}
        {row.excerpt && <span class="quiet excerpt" title={row.excerpt}> {row.excerpt}</span>}
          </span>
      {props.hasAgent && <span role="cell" class="quiet"><bdi>{row.agent >= 0 ? agentName(row.agent) : ""}</bdi></span>}
      {values.map((value, i) =>
        <span key={i} role="cell" class="credit-cell"><Diverging row={value} scale={props.scale} /></span>)}
    </div>
  );
}

/** A bar from the zero in the middle, with its interval as a line. */
function Diverging(props: { row: CreditRow | null; scale: number }) {
  const { row, scale } = props;
  if (!row) return <span class="quiet" title="no credit given; that is not zero">–</span>;
  const share = (value: number) => 50 + 50 * Math.max(-1, Math.min(1, value / scale));
  const at = share(row.value);
  const hasRange = row.low !== null && row.high !== null;
  const title = hasRange ? `${signed(row.value, 4)}, 95 % from ${signed(row.low, 4)} to ${signed(row.high, 4)}`
    : signed(row.value, 6);
  return (
    <>
      <span class="number">{signed(row.value)}</span>
      <span class="diverging" title={title} aria-hidden="true">
        <i class="bar"
          style={{ left: `${Math.min(50, at)}%`, width: `${Math.abs(at - 50)}%`,
            background: creditColour(Math.sign(row.value), 1, shade.value) }} />
        {hasRange && <i class="range" style={{ left: `${share(row.low!)}%`, width: `${share(row.high!) - share(row.low!)}%` }} />}
      </span>
      {hasRange && <span class="quiet range-text">{signed(row.low)}…{signed(row.high)}</span>}
    </>
  );
}

/** Tokens of each event, coloured and underlined by their credit. */
export function HeatStrip(props: { credit: Credit; scale: number }) {
  const groups = tokensByEvent(props.credit.rows);
  return (
    <Windowed class="heat" label={`Tokens and their credit, ${props.credit.method}`} listKey={props.credit.method}
      count={groups.length} estimate={64}
      render={(i) => {
        const group = groups[i]!;
        const said = group.rows[0]?.excerpt ?? "";
        const words = said.split(" ").filter(Boolean);
        const isWords = words.length === group.rows.length;
        const label = (name: string, k: number): string => (isWords ? words[k]! : name.slice(name.lastIndexOf("#") + 1));
        return (
          <div class={group.event === selectedEvent.value ? "heat-row is-selected" : "heat-row"}>
            <button type="button" class="crumb" onClick={() => selectEvent(group.event)}>
              <bdi>{agentName(group.agent)}</bdi> {eventName(group.event)}</button>
            {!isWords && <bdi class="quiet heat-said">{said}</bdi>}
            <p>{group.rows.map((row, k) => {
              const colour = creditColour(row.value, props.scale, shade.value);
              return (
                <span key={k} class="token" title={`credit ${signed(row.value, 4)}`}
                  style={{ background: colour, color: inkOn(colour),
                    borderBottomWidth: `${creditLine(row.value, props.scale)}px` }}>{label(row.label, k)}</span>
              );
            })}</p>
          </div>
        );
      }} />
  );
}
