// How a run came out: a thumb, what people said, and what the log suggests. Always true: a proposal is marked as one, and counts
// only once somebody accepts it; what was said before stays in the list.
import { useState } from "preact/hooks";
import { useLoaded } from "../loaded";
import { plain } from "../numbers";
import type { Outcomes } from "../shapes.gen";
import { Failure } from "../shell/states";
import { say } from "../shell/toast";
import { reload, selectEvent, source, trace } from "../state";

export function Outcome() {
  const { id, about } = trace.value!;
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const found = useLoaded(`${id}/outcomes`, String(about.rewards.team ?? ""), () => source.value!.outcomes(id));
  const canScore = source.value?.kind === "server";
  const send = async (said: { value?: number; proposal?: number }): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await source.value!.score(id, said);
      say("Stored, with your name and the time.");
      reload();
    } catch (problem) { setError(problem); } finally { setBusy(false); }
  };
  const data = found.data;
  return (
    <div class="outcome" role="group" aria-label="How it came out">
      {canScore && (
        <p class="row">
          <button type="button" disabled={isBusy} onClick={() => void send({ value: 1 })} aria-label="It came out well: team = 1"
            title="It came out well: team = 1"><Thumb /></button>
          <button type="button" disabled={isBusy} onClick={() => void send({ value: 0 })} aria-label="It did not: team = 0"
            title="It did not: team = 0"><Thumb isDown /></button>
          <span class="quiet">How did it come out?</span>
        </p>
      )}
      {error !== null && <Failure error={error} />}
      {data && data.given.length > 0 && <Given all={data.given} />}
      {data && data.proposed.length > 0 && <Proposed all={data.proposed} canScore={canScore} isBusy={isBusy}
        onAccept={(proposal) => void send({ proposal })} />}
    </div>
  );
}

function Thumb({ isDown = false }: { isDown?: boolean }) {
  return (
    <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.3"
      stroke-linejoin="round" transform={isDown ? "rotate(180)" : undefined}>
      <path d="M1.5 7h3v7h-3zM4.5 8l3-6.2c1 0 1.7.8 1.5 1.8L8.6 6H13c.8 0 1.4.8 1.2 1.5l-1.4 5.3c-.2.7-.8 1.2-1.5 1.2H4.5" />
    </svg>
  );
}

function Given({ all }: { all: Outcomes["given"] }) {
  return (
    <ul class="plain-list">
      {all.map((one, i) => (
        <li key={i}>{one.channel} {plain(one.value, 4)} <span class="quiet">by {one.by}
          {one.at > 0 && `, ${new Date(one.at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}`}
          {one.why && `: ${one.why}`}</span></li>
      ))}
    </ul>
  );
}

function Proposed(props: { all: Outcomes["proposed"]; canScore: boolean; isBusy: boolean; onAccept: (place: number) => void }) {
  return (
    <>
      <p class="quiet">The log suggests an outcome. It counts once you accept it.</p>
      <ul class="plain-list">
        {props.all.map((one, i) => (
          <li key={i}>
            <span class="badge">proposal</span> reward {one.channel} = {plain(one.value, 4)} <span class="quiet">({one.kind})</span> {" "}
            {one.event >= 0
              ? <button type="button" class="plain" onClick={() => selectEvent(one.event)}><bdi>{one.says}</bdi></button>
              : <bdi>{one.says}</bdi>}
            {props.canScore && <> <button type="button" disabled={props.isBusy} onClick={() => props.onAccept(i)}>Accept</button></>}
          </li>
        ))}
      </ul>
    </>
  );
}
