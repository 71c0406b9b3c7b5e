// The trace page. Always true: the answer comes first, the events second; one selection is shared by all views; the panels that a
// narrow window has no room for are reached by their tab.
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import EventPanel from "../event/Event";
import { COMMANDS, onCommand } from "../keys";
import AgentMap from "../map/Map";
import { VIEWS, type View } from "../router";
import { Empty, Boundary, Failure } from "../shell/states";
import { Splitter, usePanelWidths } from "../shell/Splitter";
import {
  isFollowing, isLoading, problem, reload, route, selectAgent, selectedAgent, showView, stepAlert, stepInLane, stepSuspect, trace, view,
} from "../state";
import Time from "../time/Time";
import Credit from "../views/Credit";
import Text from "../views/Text";
import { AnswerStrip, TraceHeader } from "./traceHeader";
import "./trace.css";

/** The agent's maker, or its first child. */
function family(step: "parent" | "child"): void {
  const agents = trace.value?.about.agents ?? [];
  const at = Math.max(0, selectedAgent.value);
  const children = agents.flatMap((one, i) => (one.parent === at ? [i] : [])).sort((a, b) => agents[a]!.spawn - agents[b]!.spawn);
  const next = step === "parent" ? agents[at]?.parent ?? -1 : children[0] ?? -1;
  if (next >= 0) selectAgent(next);
}

function useTraceCommands(): void {
  useEffect(() => {
    const ends = [
      ...VIEWS.map((name) => onCommand(`view-${name}`, () => showView(name))),
      onCommand("event-next", () => stepInLane(1)),
      onCommand("event-previous", () => stepInLane(-1)),
      onCommand("parent", () => family("parent")),
      onCommand("child", () => family("child")),
      onCommand("alert-next", () => stepAlert(1)),
      onCommand("alert-previous", () => stepAlert(-1)),
      onCommand("suspect-next", () => stepSuspect(1)),
      onCommand("suspect-previous", () => stepSuspect(-1)),
      onCommand("follow", () => { isFollowing.value = !isFollowing.value; }),
    ];
    return () => ends.forEach((end) => end());
  }, []);
}

/** What the tab of a view says, and its key: as the command that shows it. */
const command = (name: View) => COMMANDS.find((one) => one.id === `view-${name}`)!;

// A panel is one file, found by its name: `two_words` of app/viewer/panels is TwoWords.tsx here.
const FILES = import.meta.glob<{ default: ComponentType }>("../panels/*.tsx", { eager: true });

function panel(id: string): ComponentType | undefined {
  const name = id.replace(/(^|_)(\w)/g, (_all, _before: string, letter: string) => letter.toUpperCase());
  return FILES[`../panels/${name}.tsx`]?.default;
}

function Tabs() {
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = VIEWS[(VIEWS.indexOf(view.value) + step + VIEWS.length) % VIEWS.length]!;
    showView(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views" onKeyDown={onKeyDown}>
      {VIEWS.map((name) => (
        <button type="button" key={name} id={`tab-${name}`} role="tab" aria-selected={view.value === name} aria-controls="view"
          tabIndex={view.value === name ? 0 : -1}
          onClick={() => showView(name)}>{command(name).text} <kbd aria-hidden="true">{command(name).key}</kbd></button>
      ))}
    </div>
  );
}

function Middle() {
  switch (view.value) {
    case "map": return <AgentMap isWide />;
    case "text": return <Text />;
    case "credit": return <Credit />;
    case "time": return <Time />;
  }
  const Panel = panel(view.value);
  return Panel ? <Panel /> : <Empty title={`This page has no panel named ${view.value}.`} />;
}

export default function TracePage() {
  useTraceCommands();
  const [widths, setWidth] = usePanelWidths();
  const at = route.value;
  const current = trace.value;
  if (at.page !== "trace") return null;
  if (current?.id !== at.id) {
    if (problem.value) return <Failure error={problem.value} onAgain={reload} />;
    return <Empty title={isLoading.value ? "Opening…" : "Nothing to show yet."}><p class="quiet"
      role="status">{at.id}</p></Empty>;
  }
  const { about } = current;
  return (
    <div class="trace">
      <TraceHeader />
      <AnswerStrip />
      {about.is_large && (
        <p class="banner" role="status">
          {about.is_partial ? `Reading ${about.events.toLocaleString("en")} events: this is a first look, and the answers follow.`
            : `${about.events.toLocaleString("en")} events are too many to show one by one: this is a summary. Zoom in to see events.`}
        </p>
      )}
      <Tabs />
      <div class={`panels view-${view.value}`} style={{ "--left": `${widths.left}rem`, "--right": `${widths.right}rem` }}>
        {view.value !== "map" && <div class="panel left"><Boundary of={at.id}><AgentMap /></Boundary></div>}
        {view.value !== "map" && <Splitter label="Width of the map" side="left" width={widths.left}
          onWidth={(rem) => setWidth("left", rem)} />}
        <div class="panel middle" id="view" role="tabpanel" aria-labelledby={`tab-${view.value}`}>
          <Boundary of={`${at.id} ${view.value}`}><Middle /></Boundary>
        </div>
        <Splitter label="Width of the event panel" side="right" width={widths.right} onWidth={(rem) => setWidth("right", rem)} />
        <div class="panel right"><Boundary of={at.id}><EventPanel /></Boundary></div>
      </div>
    </div>
  );
}
