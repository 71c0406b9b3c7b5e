// Orders to running teams, agent by agent. Always true: nothing is sent without a second press; each order says whether it is
// queued, has taken effect (and at which event), or was refused (and why); teams that take no orders have no buttons.
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem } from "../loaded";
import type { Picture } from "../livestate";
import { span } from "../numbers";
import { traceLink } from "../router";
import { Link } from "../shell/Link";
import { Failure } from "../shell/states";
import type { LiveTrace } from "../shapes.gen";
import { source } from "../state";
import { type Action, lookedUp, type Member, members, queued, refused, type Sent, SENT_KEPT, settled, whom } from "../steering";

const MOST_SHOWN = 100;
const WORDS: Record<Action, string> = { pause: "Pause", resume: "Resume", message: "Message", stop: "Stop" };

interface Asked {
  trace: string;
  action: Action;
  agent: string;
}

export function Steer(props: { picture: Picture; now: number }) {
  const { picture, now } = props;
  const [sent, setSent] = useState<Sent[]>([]);
  const [asked, ask] = useState<Asked | null>(null);
  const teams = picture.traces.filter((trace) => trace.is_steerable);
  useEffect(() => setSent((old) => (old.length ? settled(old, picture.traces) : old)), [picture]);
  const ended = sent.find((one) => one.state === "ended");
  useEffect(() => {
    if (!ended) return;
    const put = (found: Sent) => setSent((old) => old.map((one) => (one.id === ended.id ? found : one)));
    lookedUp(ended, source.value!).then(put, (failed) => put({ ...ended, state: "lost", why: asProblem(failed).what }));
  }, [ended?.id]);
  const add = (one: Sent) => setSent((old) => [...old, one].slice(-SENT_KEPT));
  if (!source.value!.canWrite || (!teams.length && !sent.length)) return null;
  return (
    <section class="steer" aria-label="Steer">
      <h2>Steer <span class="quiet">acts at the next safe point</span></h2>
      <Orders sent={sent} />
      {teams.map((trace) => <Team key={trace.id} trace={trace} all={members(trace, picture, now)} onAsk={ask} />)}
      {asked && <Confirm key={`${asked.trace} ${asked.action} ${asked.agent}`} asked={asked} onSent={add} onClose={() => ask(null)} />}
    </section>
  );
}

function Team(props: { trace: LiveTrace; all: Member[]; onAsk: (asked: Asked) => void }) {
  const { trace, all } = props;
  const live = all.filter((one) => one.state !== "stopped");
  const isPaused = live.length > 0 && live.every((one) => one.state === "paused");
  const buttons = (agent: string, paused: boolean) =>
    <Buttons trace={trace.id} agent={agent} isPaused={paused} onAsk={props.onAsk} />;
  return (
    <div class="scroll"><table class="wide">
      <caption><bdi>{trace.id}</bdi></caption>
      <thead><tr><th scope="col">agent</th><th scope="col">doing</th><th scope="col">order</th></tr></thead>
      <tbody>
        <tr><th scope="row">the team</th><td class="quiet">{all.length === live.length ? `${all.length} agents` : `${live.length} of ${all.length} agents at work`}</td>
          <td>{live.length > 0 && buttons("", isPaused)}</td></tr>
        {all.slice(0, MOST_SHOWN).map((one) => (
          <tr key={one.name}>
            <th scope="row"><bdi>{one.name}</bdi></th>
            <td><Doing member={one} /></td>
            <td>{one.state === "stopped" ? "" : buttons(one.name, one.state === "paused")}</td>
          </tr>
        ))}
      </tbody>
    </table>
      {trace.agents > Math.min(all.length, MOST_SHOWN) &&
        <p class="quiet">others: <code>counterpoint steer {trace.id} pause --agent NAME</code></p>}</div>
  );
}

function Doing(props: { member: Member }) {
  const { state, doing, age } = props.member;
  if (state === "paused" || state === "stopped") return <span class="badge warn">{state}</span>;
  return state === "waiting" ? <span class="quiet">waiting</span>
    : <><bdi>{doing}</bdi> <span class="quiet">{age === null ? "" : span(Math.round(age))}</span></>;
}

function Buttons(props: { trace: string; agent: string; isPaused: boolean; onAsk: (asked: Asked) => void }) {
  const { trace, agent } = props;
  const actions: Action[] = [props.isPaused ? "resume" : "pause", "message", "stop"];
  return (
    <span class="chips">{actions.map((action) => (
      <button key={action} type="button" aria-label={`${WORDS[action]} ${whom(agent)} of ${trace}`}
        onClick={() => props.onAsk({ trace, action, agent })}>{WORDS[action]}</button>
    ))}</span>
  );
}

/** The second press: what will be done, with room for words. */
function Confirm(props: { asked: Asked; onSent: (sent: Sent) => void; onClose: () => void }) {
  const { trace, action, agent } = props.asked;
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [tree, setTree] = useState(action === "stop");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const isMessage = action === "message";
  const send = async (submit: Event): Promise<void> => {
    submit.preventDefault();
    setBusy(true);
    setError(null);
    try {
      props.onSent(queued(trace, await source.value!.steer(trace, { action, agent, text: text.trim(), tree: tree && agent !== "" })));
      dialog.current?.close();
    } catch (failed) {
      props.onSent(refused(trace, action, agent, asProblem(failed).what));
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="dialog" onClose={props.onClose} aria-labelledby="steer-title">
      <form class="fork" onSubmit={(submit) => void send(submit)}>
        <h2 id="steer-title">{WORDS[action]} {whom(agent)}?</h2>
        <p class="quiet">of <bdi>{trace}</bdi>. It acts at the next safe point, is recorded as an event, and the trace is marked as
          steered in every comparison.</p>
        <label class="fork-value">{isMessage ? "Message" : "Reason, if you like"}
          <textarea rows={isMessage ? 4 : 2} value={text} required={isMessage} onInput={(input) => setText(input.currentTarget.value)} />
        </label>
        {agent !== "" && <label class="switch"><input type="checkbox" checked={tree} onChange={() => setTree(!tree)} />
          with all that it spawned</label>}
        {error !== null && <Failure error={error} />}
        <div class="row">
          <button type="submit" class="main" disabled={isBusy || (isMessage && !text.trim())}>{WORDS[action]} {whom(agent)}</button>
          <button type="button" onClick={() => dialog.current?.close()}>Cancel</button>
        </div>
      </form>
    </dialog>
  );
}

function Orders(props: { sent: readonly Sent[] }) {
  return (
    <ul class="orders plain-list" aria-label="Orders" aria-live="polite">
      {[...props.sent].reverse().map((one) => (
        <li key={one.id}><strong>{one.action} <bdi>{whom(one.agent)}</bdi></strong> <Became sent={one} /></li>
      ))}
    </ul>
  );
}

function Became(props: { sent: Sent }) {
  const { state, events, trace, why } = props.sent;
  const first = events[0];
  if (state === "applied" && first) {
    const more = events.length > 1 ? ` and ${events.length - 1} more` : "";
    return <span>applied at <Link to={traceLink(trace, { event: first.event })}>{first.event}</Link>{" "}
      <span class="quiet"><bdi>{first.agent}</bdi>{more}</span></span>;
  }
  if (state === "queued") return <span class="quiet">queued for the next safe point</span>;
  if (state === "ended") return <span class="quiet">the team has ended…</span>;
  return <span class="badge warn">{state === "lost" ? "not applied" : "refused"}: {why}</span>;
}
