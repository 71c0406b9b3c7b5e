// The top of the trace page: what it is, the answer strip, the search. Always true: a total with gaps is not printed as a total;
// facts are computed elsewhere and each leads to what is behind it.
import { useEffect, useRef, useState } from "preact/hooks";
import { onCommand, runCommand } from "../keys";
import { sentence } from "../loaded";
import { compact, count, moment, money, plain, span } from "../numbers";
import { Plain } from "../plaintext";
import type { About, Fact } from "../shapes.gen";
import { FIELD_NAMES, MARKS } from "../search";
import { ForkButton } from "../event/Fork";
import { Popover } from "../shell/Popover";
import { Steered } from "../shell/states";
import { say } from "../shell/toast";
import { Share } from "./Share";
import {
  filterProblem, mask, query, selectAgent, selectEvent, selectedEvent, showView, source, stepAlert, trace,
} from "../state";

/** The team's reward, by whatever name it has. */
export function teamReward(rewards: Record<string, number>): number | null {
  return rewards["team"] ?? rewards["team_reward"] ?? rewards["R"] ?? Object.values(rewards)[0] ?? null;
}

/** The cost, with a plus where tokens of some calls have no price. */
function cost(about: About): string {
  const known = about.costs["cost_usd"] ?? null;
  return money(known) + (known !== null && Object.keys(about.unpriced ?? {}).length > 0 ? "+" : "");
}

function Numbers() {
  const { about } = trace.value!;
  const agents = about.agents.filter((one) => !one.is_outside);
  const all: [string, string][] = [
    ["R", about.has_reward ? plain(teamReward(about.rewards), 3) : "–"], ["", count(agents.length, "agent")],
      ["", count(about.events, "event")], ["", about.errors > 0 ? count(about.errors, "error") : "–"],
    ["", `${compact(about.costs["tokens"] ?? null)} tokens`], ["", cost(about)], ["", span(about.costs["wall_clock_s"] ?? null)],
    ["", moment(about.started)],
  ];
  return <ul class="trace-numbers">{all.filter(([, value]) => !value.startsWith("–")).map(([name, value]) => <li
    key={value} class={name ? "first" : ""}>{name} {value}</li>)}</ul>;
}

function Search() {
  const box = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(query.value);
  const [isHelp, setHelp] = useState(false);
  useEffect(() => onCommand("search", () => { box.current?.focus(); box.current?.select(); }), []);
  // Only a query from elsewhere (a link, the back button) is written into the box: an echo of our own would undo a letter typed meanwhile.
  const own = useRef(query.value);
  useEffect(() => {
    if (query.value !== own.current) { own.current = query.value; setText(query.value); }
  }, [query.value]);
  useEffect(() => {
    const timer = setTimeout(() => { own.current = text.trim(); query.value = own.current; }, 150);
    return () => clearTimeout(timer);
  }, [text]);
  const found = mask.value ? mask.value.reduce((sum, one) => sum + one, 0) : null;
  const toFirst = (): void => { const first = mask.value?.indexOf(1, selectedEvent.value + 1) ?? -1;
    if (first >= 0) selectEvent(first); };
  return (
    <div class="trace-search">
      <input ref={box} type="search" aria-label="Search events" placeholder="/ words, kind:spawn, tokens>5k, tainted" value={text}
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)} onFocus={() => setHelp(true)} onBlur={() => setHelp(false)}
        onKeyDown={(event) => { if (event.key === "Escape") event.currentTarget.blur(); if (event.key === "Enter") toFirst();
          }} />
      <span role="status" class={filterProblem.value ? "search-problem" : "quiet"}>
        {filterProblem.value ? `${sentence(filterProblem.value.what)} ${sentence(filterProblem.value.fix ?? "")}`
          : found !== null ? `${found.toLocaleString("en")} of ${trace.value!.about.events.toLocaleString("en")}` : ""}
      </span>
      {isHelp && !text && (
        <div class="search-help" aria-hidden="true">
          <p>Fields: {FIELD_NAMES.join(" ")}</p><p>Marks: {MARKS.join(" ")}</p><p>Enter goes to the next match.</p>
        </div>
      )}
    </div>
  );
}

export function TraceHeader() {
  const { about } = trace.value!;
  const canFork = about.can_fork && source.value!.canWrite;
  return (
    <header class="trace-head">
      <h1 title={about.id}>{about.title ?? about.id}</h1>
      <Popover title="About">
        <dl class="share-box about-box">
          <dt>id</dt><dd><code>{about.id}</code></dd>
          <dt>task</dt><dd><bdi>{about.task_id}</bdi></dd>
          {about.project && <><dt>project</dt><dd><bdi>{about.project}</bdi></dd></>}
          {about.started != null && <><dt>began</dt><dd>{moment(about.started)} UTC</dd></>}
          {about.models.length > 0 && <><dt>{about.models.length > 1 ? "models" : "model"}</dt><dd>{about.models.join(", ")}</dd></>}
          {about.system && <><dt>system</dt><dd>{about.system}{about.topology ? `, ${about.topology.replaceAll("_", " ")}` : ""}</dd></>}
        </dl>
      </Popover>
      <Numbers />
      {about.alerts.length > 0 && <button type="button" class={about.alerts.some((one) => one.severity === "high") ? "badge bad" : "badge warn"} onClick={() => stepAlert(1)}
        title="Next alert (.)">⚠ {count(about.alerts.length, "alert")}</button>}
      {about.is_steered && <Steered />}
      {about.is_masked && <span class="badge">masked</span>}
      <div class="end">
        <Search />
        <ForkButton canFork={canFork} title="Fork at the selected event (X)"
          onFork={() => { if (!runCommand("fork")) say("Select the event to change first, then fork there."); }} />
        <Share />
      </div>
    </header>
  );
}

function open(fact: Fact): void {
  if (fact.event >= 0) selectEvent(fact.event);
  else if (fact.agent >= 0) selectAgent(fact.agent);
  if (/incident|taint|safety/.test(fact.kind)) showView("safety");
  else if (/credit/.test(fact.kind)) showView("credit");
}

/** Computed facts, each a link. Absent facts are absent. */
export function AnswerStrip() {
  const { about } = trace.value!;
  if (!about.facts.length && !about.notes.length) return null;
  return (
    <ul class="answers" aria-label="Answers">
      {about.facts.map((fact) => (
        <li key={`${fact.kind} ${fact.text}`}>
          {fact.event >= 0 || fact.agent >= 0 || /incident|taint|safety|credit/.test(fact.kind)
            ? <button type="button" class="plain" onClick={() => open(fact)}><Plain text={fact.text} /></button>
            : <span><Plain text={fact.text} /></span>}
        </li>
      ))}
      {about.notes.length > 0 && (
        <li>
          <Popover class="notes" title={count(about.notes.length, "note")}>
            <ul class="share-box plain-list">{about.notes.map((note) => <li key={note}><Plain text={note} /></li>)}</ul>
          </Popover>
        </li>
      )}
    </ul>
  );
}
