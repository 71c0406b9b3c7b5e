// Who broke it. Always true: the ranking is the one that `counterpoint blame` prints; the same suspects are marked on the timeline,
// and the keys that step through them go by rank; what is said of them is the server's word.
import { useEffect } from "preact/hooks";
import { Note, useLoaded, Waiting } from "../loaded";
import { count, percent } from "../numbers";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { SuspectStep, Suspicion } from "../shapes.gen";
import { EventId } from "../shell/EventId";
import { selectedEvent, selectEvent, showView, source, stepSuspect, suspects, trace } from "../state";
import "../views/views.css";

export default function Blame() {
  const { id } = trace.value!;
  const { data, problem } = useLoaded(id, id, () => source.value!.panel<Suspicion>(id, "blame"));
  useEffect(() => {
    if (data) suspects.value = data.suspects.map((one) => one.event);
  }, [data]);
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Weighing every step" />;
  return <Ranking found={data} />;
}

function Ranking(props: { found: Suspicion }) {
  const { found } = props;
  const agents = Object.entries(found.agents).slice(0, 8);
  return (
    <section class="blame" aria-label="Blame">
      {found.suspects.length > 0 && (
        <header class="reach">
          <p><strong>{found.verdict}</strong></p>
          <p class="why"><Plain text={found.why} />{" "}
            {found.shown.map((n) => (
              <button key={n} type="button" class="plain" aria-pressed={n === selectedEvent.value} onClick={() => selectEvent(n)}>
                <EventId n={n} /></button>
            ))}
          </p>
          <p class="quiet">Nine in ten: {found.set}</p>
          <p class="quiet">Shares are the ranker's, over {count(found.steps, "step")}.</p>
          <p class="chips">
            <button type="button" onClick={() => stepSuspect(-1)}>Previous suspect</button>
            <button type="button" onClick={() => stepSuspect(1)}>Next suspect</button>
            <button type="button" onClick={() => showView("time")}>Show them on the timeline</button>
          </p>
        </header>
      )}
      {found.suspects.length === 0 && found.steps > 0 && (
        <>
          <p><strong>{found.verdict}</strong></p>
          <p class="quiet">Nine in ten: {found.set}</p>
        </>
      )}
      {found.notes.map((note) => <p key={note} class="note"><Note text={note} /></p>)}
      {found.failed.length > 0 && <Failed found={found} />}
      <ol class="suspects" aria-label="Suspects, the largest share first">
        {found.suspects.map((one, i) => <li key={one.event}><Suspect one={one} rank={i + 1} /></li>)}
      </ol>
      {agents.length > 1 && <p class="quiet">By agent: {agents.map(([name, share]) => `${name} ${percent(share)}`).join(", ")}</p>}
    </section>
  );
}

/** Where no step can be named, what went wrong is told instead. */
function Failed(props: { found: Suspicion }) {
  const { found } = props;
  const left = found.failed_count - found.failed.length;
  return (
    <section aria-label="What failed">
      <p>{count(found.failed_count, "failure")} in it:</p>
      <ul class="reasons">
        {found.failed.map((one) => (
          <li key={one.event}>
            <button type="button" class="plain" aria-pressed={one.event === selectedEvent.value} onClick={() => selectEvent(one.event)}>
              <bdi>{one.agent}</bdi> <EventId n={one.event} /></button>{" "}
            <bdi>{one.what}</bdi>: <Plain text={one.reason} />{one.is_mended && <span class="quiet"> (worked later)</span>}
          </li>
        ))}
      </ul>
      {left > 0 && <p class="quiet">{count(left, "more failure")}.</p>}
    </section>
  );
}

function Suspect(props: { one: SuspectStep; rank: number }) {
  const { one, rank } = props;
  return (
    <article class="suspect">
      <p class="path-head">
        <button type="button" class="step" aria-pressed={one.event === selectedEvent.value} onClick={() => selectEvent(one.event)}>
          <em>{rank}</em>
          <span><bdi>{one.agent}</bdi> <EventId n={one.event} /></span>
          <small class="quiet">step {one.step}</small>
        </button>
        <meter min={0} max={1} value={one.score} aria-label={`Share: ${percent(one.score)}`} /> <strong>{percent(one.score)}</strong>
      </p>
      <p class="said">{one.text ? <Plain text={one.text} /> : <span class="quiet">no text</span>}</p>
      <ul class="reasons">
        {one.reasons.map((why) => (
          <li key={why.words}>{why.words}{why.excerpt && <>: <q><Plain text={why.excerpt} /></q></>}</li>
        ))}
      </ul>
    </article>
  );
}

