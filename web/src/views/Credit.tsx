// Who earned it. Always true: sums are added up on the screen and held against the reward; a method that cannot answer says why
// and what would help; two methods side by side share one scale. Where none is identified, cost and work of each agent come first.
import { signal } from "@preact/signals";
import { Fragment } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { disagreements, nearestUnit, sharedScale } from "../creditmath";
import { onCommand } from "../keys";
import { Command, useLoaded, Waiting } from "../loaded";
import { plain, signed } from "../numbers";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { Credit as Answer, CreditRow, MethodInfo } from "../shapes.gen";
import { agentName, eventName, method, methodList, methods, selectAgent, selectEvent, source, trace } from "../state";
import { Agents, CreditTable, HeatStrip, type Pair, SumBar } from "./creditparts";
import { Work } from "./Work";
import "./views.css";

/** Stays when the reader looks at another view and comes back. Empty: the method's own unit. */
const unit = signal("");

const UNITS = ["token", "turn", "event", "agent", "team"];

export default function Credit() {
  const { id, about } = trace.value!;
  useEffect(() => onCommand("second-method", toggleSecond), []);
  const list = methodList.value;
  if (!list) return <Waiting what="Looking which methods apply" />;
  const first = method.value;
  if (!first) return <NotChosen id={id} list={list} hasReward={about.has_reward} />;
  return <Chosen id={id} list={list} first={first} second={methods.value[1] ?? null} />;
}

/** A second method beside the first, or the first alone again. */
function toggleSecond(): void {
  const list = methodList.peek() ?? [];
  const [, second] = methods.peek();
  const first = method.peek();
  if (!first) return;
  const other = list.find((one) => !one.refusal && one.id !== first)?.id;
  methods.value = second || !other ? [first] : [first, other];
}

/** Nothing is identified: what each agent cost and what became of its work is the answer. */
function NotChosen({ id, list, hasReward }: { id: string; list: MethodInfo[]; hasReward: boolean }) {
  return (
    <section class="credit unasked" aria-label="Credit">
      <div class="credit-main">
        <Work />
        {!hasReward && <p class="quiet">Say how the run came out with a thumb in the panel on the right, or
          by <Command text={`counterpoint notes score ${id} team=1`} /></p>}
        <Methods list={list} first={null} second={null} />
      </div>
    </section>
  );
}

function Chosen(props: { id: string; list: MethodInfo[]; first: string; second: string | null }) {
  const { id, list, first, second } = props;
  const own = (method: string | null) => unit.value || (list.find((one) => one.id === method)?.unit ?? "");
  const wanted = own(first);
  const ask = (method: string | null) => (method ? () => creditNear(id, method, wanted) : null);
  const a = useLoaded(`${id}/1`, `${first}/${wanted}`, ask(first));
  const b = useLoaded(`${id}/2`, `${second}/${wanted}`, ask(second));
  const answers = [a.data, second ? b.data : null].filter((one): one is Answer => one !== null && !one.refusal);
  const scale = useMemo(() => sharedScale(answers), [a.data, b.data, second]);
  return (
    <section class="credit" aria-label="Credit">
      <header class="credit-head">
        <Units credit={a.data} wanted={wanted} />
        <span class="quiet end">scale ±{plain(scale)}{answers.length > 1 ? " shared" : ""}</span>
        <button type="button" onClick={toggleSecond} aria-pressed={second !== null}
          title="A second method beside the first (B)">Side by side <kbd>B</kbd></button>
      </header>
      <Methods list={list} first={first} second={second} />
      <div class="credit-main">
        <div class="credit-sides">{[a, ...(second ? [b] : [])].map((one, i) => (
          <section key={i} class="credit-one" aria-label={i ? "Second method" : "First method"} aria-busy={one.isWaiting}>
            <Title info={list.find((info) => info.id === (i ? second : first))} name={(i ? second : first)!} />
            {one.problem ? <Failure error={one.problem} />
              : one.data ? <One credit={one.data} scale={scale} wanted={wanted} /> : <Waiting what="Dividing the reward" />}
          </section>
        ))}</div>
        {answers.length === 2 && <Apart a={answers[0]!} b={answers[1]!} />}
        {answers.length > 0 && <Detail answers={answers} scale={scale} />}
        <Work />
      </div>
    </section>
  );
}

/** Credit at a unit, or at the nearest that the method has. Without a unit the method's own. */
async function creditNear(id: string, method: string, wanted: string): Promise<Answer> {
  const found = await source.value!.credit(id, method, wanted);
  const other = found.refusal && wanted ? nearestUnit(wanted, found.units) : null;
  return other ? source.value!.credit(id, method, other) : found;
}

function Units(props: { credit: Answer | null; wanted: string }) {
  const given = props.credit?.units ?? [];
  const all = [...UNITS, ...given.filter((one) => !UNITS.includes(one))];
  const shown = props.credit?.unit ?? props.wanted;
  return (
    <div class="chips" role="group" aria-label="Unit">
      <span class="quiet">unit</span>
      {all.map((one) => (
        <button key={one} type="button" class="chip" aria-pressed={one === shown} onClick={() => (unit.value = one)}
          title={given.includes(one) || !given.length ? undefined : "this method does not go there; the nearest unit is shown"}
          data-absent={given.length > 0 && !given.includes(one)}>{one}</button>
      ))}
    </div>
  );
}

function Title(props: { info: MethodInfo | undefined; name: string }) {
  return (
    <h3 class="method-title">
      {props.name} <span class="badge">{props.info?.is_additive ? "additive" : "not additive"}</span>
      {props.info && <span class="quiet about" title={props.info.about}> {props.info.about}</span>}
      {props.info?.why && <span class="quiet about method-why"> Chosen: {props.info.why}.</span>}
    </h3>
  );
}

function One(props: { credit: Answer; scale: number; wanted: string }) {
  const { credit, scale, wanted } = props;
  const { id, has_logp } = trace.value!.about;
  if (credit.refusal) {
    return (
      <div class="refusal" role="status">
        <p>{credit.method} cannot answer here: {credit.refusal}</p>
        {credit.fix &&
          <p>Try: {credit.fix.startsWith("counterpoint ") ? <Command text={credit.fix} /> : credit.fix}</p>}
      </div>
    );
  }
  return (
    <>
      {wanted !== "" && wanted !== credit.unit && (
        <p class="note" role="status">
          {wanted === "token" && !has_logp
            ? `Credit by token needs log-probs, which the source of ${id} did not record: this is credit by ${credit.unit}.`
            : `${credit.method} gives no credit by ${wanted} here: showing ${credit.unit}s instead.`}
        </p>
      )}
      <SumBar credit={credit} />
      {credit.notes.map((note) => <p key={note} class="quiet"><Plain text={note} /></p>)}
      {credit.unit !== "agent" && <Agents credit={credit} scale={scale} />}
    </>
  );
}

/** Where the two methods are furthest apart. */
function Apart(props: { a: Answer; b: Answer }) {
  const { a, b } = props;
  const found = useMemo(() => disagreements(a, b, 4), [a, b]);
  if (a.unit
    !== b.unit) return <p class="note">
      {a.method} speaks of {a.unit}s, {b.method} of {b.unit}s: choose a unit that both have to compare them.</p>;
  return (
    <div class="apart">
      <span class="quiet">methods disagree most at: </span>
      {found.at.length === 0 && "nowhere"}
      {found.at.map((one) => (
        <button key={`${one.event}/${one.agent}/${one.label}`} type="button" class="chip"
          onClick={() => (one.event >= 0 ? selectEvent(one.event) : selectAgent(one.agent))}>
          <bdi>{one.event >= 0 ? eventName(one.event) : one.agent >= 0 ? agentName(one.agent) : one.label}</bdi> ({a.method} {signed(one.a)}, {b.method} {signed(one.b)})
        </button>
      ))}
      {found.onlyOne > 0 && <span class="quiet"> · {found.onlyOne} have credit by one method only</span>}
    </div>
  );
}

function Detail(props: { answers: Answer[]; scale: number }) {
  const [a, b] = props.answers;
  const pairs = useMemo(() => joined(a!, b), [a, b]);
  if (a!.unit === "token") {
    return <>
      {props.answers.map((one) =>
        <HeatStrip key={one.method} credit={one} scale={sharedScale([{ ...one, by_agent: {}, unassigned: null }])} />)}</>;
  }
  if (!pairs.length) return <p class="nothing">No {a!.unit} got any credit.</p>;
  return <CreditTable pairs={pairs} methods={props.answers.map((one) => one.method)} scale={props.scale} unit={a!.unit} />;
}

/** Rows of the first method with those of the second; what only the second has comes at the end. */
function joined(a: Answer, b: Answer | undefined): Pair[] {
  if (!b || b.unit !== a.unit) return a.rows.map((row) => ({ row, values: b ? [row, null] : [row] }));
  const key = (row: CreditRow) => `${row.event}/${row.agent}/${row.label}`;
  const others = new Map(b.rows.map((row) => [key(row), row]));
  const pairs: Pair[] = a.rows.map((row) => {
    const other = others.get(key(row)) ?? null;
    others.delete(key(row));
    return { row, values: [row, other] };
  });
  return [...pairs, ...[...others.values()].map((row) => ({ row, values: [null, row] }))];
}

/** An id that breaks between its words. */
function Name({ id }: { id: string }) {
  return <>{id.split("_").map((word, i) => <Fragment key={i}>{i > 0 && <>_<wbr /></>}{word}</Fragment>)}</>;
}

/** All methods: those that answer, then those that cannot, with their reasons. */
function Methods(props: { list: MethodInfo[]; first: string | null; second: string | null }) {
  const able = props.list.filter((one) => !one.refusal);
  const refused = props.list.filter((one) => one.refusal);
  return (
    <nav class="methods" aria-label="Credit methods">
      <h3>{props.first === null ? "Methods, by name" : "Methods"}</h3>
      <ul>
        {able.map((one) => (
          <li key={one.id}>
            <button type="button" class="method" aria-pressed={one.id === props.first} title={one.about}
              onClick={() => (methods.value = [one.id, ...(props.second && props.second !== one.id ? [props.second] : [])])}>
              <Name id={one.id} /> <span class="quiet">{one.unit}{one.is_additive ? " · Σ" : ""}</span>
            </button>
            {props.first !== null && one.id !== props.first && (
              <button type="button" class="beside" aria-pressed={one.id === props.second}
                aria-label={`vs ${one.id}, beside ${props.first}`} title="beside the first"
                onClick={() => (methods.value = one.id === props.second ? [props.first!] : [props.first!, one.id])}>vs</button>
            )}
          </li>
        ))}
      </ul>
      {refused.length > 0 && (
        <details open={!able.length && props.first !== null}>
          <summary>{refused.length} cannot answer here</summary>
          <ul>
            {refused.map((one) => (
              <li key={one.id} class="refused">
                <button type="button" class="method" aria-pressed={one.id === props.first}
                  onClick={() => (methods.value = [one.id])}>{one.id}</button>
                <p class="quiet">{one.refusal}</p>
              </li>
            ))}
          </ul>
        </details>
      )}
    </nav>
  );
}
