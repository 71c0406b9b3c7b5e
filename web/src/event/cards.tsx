// The right panel when no event is selected: an agent, or the whole trace. Always true: a number that is absent is a dash.
import { compact, minus, money, percent, plain, signed, span } from "../numbers";
import { Plain } from "../plaintext";
import { Outcome } from "./Outcome";
import { Link } from "../shell/Link";
import { Popover } from "../shell/Popover";
import { traceLink } from "../router";
import type { Alert } from "../shapes.gen";
import { agentName, creditByAgent, method, selectAgent, selectEvent, selectedAgent, showView, trace } from "../state";

function Facts({ all }: { all: [string, string][] }) {
  return <dl class="fields">{all.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

export function AgentCard({ agent }: { agent: number }) {
  const { about } = trace.value!;
  const one = about.agents[agent];
  if (!one) return null;
  const children = about.agents.flatMap((other, i) => (other.parent === agent ? [i] : []));
  const credit = creditByAgent.value[agent] ?? null;
  return (
    <section class="event" aria-label="Agent">
      <header class="panel-head"><h2 title={one.name}>{one.label || one.name}</h2>
        {one.role && one.role !== one.label && <span class="quiet">{one.role}</span>}
        {one.label && one.label !== one.name && <Popover title="id"><div class="share-box"><code>{one.name}</code></div></Popover>}
        <div class="end"><button type="button" class="plain" onClick={() => { selectedAgent.value = -1; }}
          aria-label="Close the agent">✕</button></div>
      </header>
      <div class="event-body">
        <Facts all={[
          ["tokens, own", compact(one.tokens_own)], ["tokens, with sub-agents", compact(one.tokens_total)],
            ["cost, own", money(one.cost_own)],
          ["cost, with sub-agents", money(one.cost_total)], ["busy", span(one.busy_s)],
            ["share of the critical path", percent(one.path_share)],
          ["events", compact(one.events)], ["first to last event", `${span(one.start)} – ${span(one.end)}`], [`credit (${method.value ?? "no method"})`, signed(credit)],
        ]} />
        <div class="row">
          <button type="button" onClick={() => showView("text")}>Read its text</button>
          {one.spawn >= 0 && <button type="button" onClick={() => selectEvent(one.spawn)}>How it was spawned</button>}
        </div>
        {one.parent >= 0 && <p>Spawned by <button type="button" class="plain"
          onClick={() => selectAgent(one.parent)}>{agentName(one.parent)}</button></p>}
        {children.length > 0 && <Children all={children} />}
      </div>
    </section>
  );
}

function Children({ all }: { all: number[] }) {
  const few = all.slice(0, 12);
  return (
    <div class="neighbours">
      <h3>Spawned {all.length} {all.length === 1 ? "agent" : "agents"}</h3>
      <ul>{few.map((i) => <li key={i}><button type="button" class="plain"
        onClick={() => selectAgent(i)}>{agentName(i)}</button></li>)}</ul>
      {all.length > few.length && <p class="quiet">and {all.length - few.length} more, in the map</p>}
    </div>
  );
}

/** A number in the unit that its name says. */
function inUnit(name: string, value: number): string {
  if (name.endsWith("_usd")) return money(value);
  if (name.endsWith("_s")) return span(value);
  return Number.isInteger(value) ? minus(value.toLocaleString("en")) : plain(value, 4);
}

export function TraceCard() {
  const { about } = trace.value!;
  const numbers = (all: Record<string, number>): [string,
    string][] => Object.entries(all).map(([name, value]) => [name.replace(/_(s|usd)$/, "").replaceAll("_", " "),
      inUnit(name, value)]);
  return (
    <section class="event" aria-label="About this trace">
      <header class="panel-head"><h2>About this trace</h2></header>
      <div class="event-body">
        <p class="quiet">Select an event or an agent to see it here.</p>
        {about.alerts.length > 0 && <Alerts />}
        <h3>Rewards</h3>
        {about.has_reward ? <Facts all={numbers(about.rewards)} /> : <p class="quiet">No reward in this trace.</p>}
        <Outcome />
        <h3>Costs and measures</h3>
        <Facts all={[...numbers(about.costs), ...numbers(about.metrics)]} />
        <h3>Source</h3>
        <Facts all={[["task", about.task_id], ["system", about.system ?? "–"], ["topology", about.topology ?? "–"],
          ["models", about.models.join(", ") || "–"]]} />
        {about.parent && <p>Forked from <Link to={traceLink(about.parent)}>{about.parent}</Link></p>}
        {about.notes.length > 0 && <><h3 id="notes">Notes</h3><ul
          class="plain-list">{about.notes.map((note) => <li key={note}><Plain text={note} /></li>)}</ul></>}
      </div>
    </section>
  );
}

/** Alerts of one text are one line, with how often; the first leads to its event, and the keys go through all. */
function alike(alerts: readonly Alert[]): [Alert, number][] {
  const found = new Map<string, [Alert, number]>();
  for (const alert of alerts) {
    const key = `${alert.severity}/${alert.text}`;
    found.set(key, [found.get(key)?.[0] ?? alert, (found.get(key)?.[1] ?? 0) + 1]);
  }
  return [...found.values()];
}

function many(times: number): string {
  return times > 1 ? ` ×${times}` : "";
}

function Alerts() {
  return (
    <div class="neighbours">
      <h3>Alerts <span class="quiet">press . or , for the next or previous one</span></h3>
      <ul>
        {alike(trace.value!.about.alerts).map(([alert, times]) => (
          <li key={`${alert.severity}/${alert.text}`} class="alert">
            <span class={`badge ${alert.severity === "high" ? "bad" : "warn"}`}>{alert.severity}</span>
            {alert.events.length
              ? <button type="button" class="plain" onClick={() => selectEvent(alert.events[0]!)}><Plain text={alert.text} />{many(times)}</button>
              : <span><Plain text={alert.text} />{many(times)}</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}
