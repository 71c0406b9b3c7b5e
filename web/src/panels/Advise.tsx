// What to change. Always true: a gain is what was measured, with and without the change; what was not tried shows no number, and
// the command that tries it stands beside it.
import { Command, Note, useLoaded, Waiting } from "../loaded";
import { compact, count, signed } from "../numbers";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { Suggestions, TriedChange } from "../shapes.gen";
import { eventName, selectedEvent, selectEvent, source, trace } from "../state";
import "../views/views.css";
import "./advise.css";

const SCOPES = [
  ["task", "For all runs of the task"],
  ["run", "In this run alone"],
] as const;

export default function Advise() {
  const { id } = trace.value!;
  const { data, problem } = useLoaded(id, id, () => source.value!.panel<Suggestions>(id, "advise"));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Trying changes" />;
  return (
    <section class="advise" aria-label="Advise">
      {data.notes.map((note) => <p key={note} class="note"><Note text={note} /></p>)}
      {SCOPES.map(([scope, title]) => {
        const rows = data.changes.filter((one) => one.scope === scope);
        return rows.length > 0 && <Scope key={scope} title={title} rows={rows} said={data.certificates[scope]} />;
      })}
      <p class="quiet">
        {data.trials > 0 ? `${count(data.trials, "trial")}, with and without each change; more of them: ` : "On the command line: "}
        <Command text={data.command} />
      </p>
    </section>
  );
}

function Scope(props: { title: string; rows: TriedChange[]; said: string | undefined }) {
  const { title, rows, said } = props;
  const most = Math.max(...rows.flatMap((one) => [Math.abs(one.low ?? 0), Math.abs(one.high ?? 0)]), 1e-9);
  const tried = rows.some((one) => one.gain !== null);
  return (
    <section class="advise-scope">
      <h3>{title}</h3>
      {said && <p><strong><Plain text={said} /></strong></p>}
      <table>
        <thead>
          <tr>
            <th scope="col">Change</th>
            {tried && <><th scope="col">Gain</th><th scope="col">Interval</th><th scope="col">Trials</th></>}
            <th scope="col">Tokens</th>
            <th scope="col">From</th>
          </tr>
        </thead>
        <tbody>{rows.map((one) => <Row key={one.says} one={one} most={most} tried={tried} />)}</tbody>
      </table>
    </section>
  );
}

function Row(props: { one: TriedChange; most: number; tried: boolean }) {
  const { one, most, tried } = props;
  return (
    <tr class={one.verdict}>
      <th scope="row"><Plain text={one.says} /></th>
      {tried && (
        <>
          <td class="number">{signed(one.gain)} <small>{one.verdict === "open" ? "" : one.verdict}</small></td>
          <td><Interval one={one} most={most} /></td>
          <td class="number">{one.trials}</td>
        </>
      )}
      <td class="number">{compact(one.tokens)}</td>
      <td>
        {one.event === null ? <span class="quiet">the start</span> : (
          <button type="button" class="plain" aria-pressed={one.event === selectedEvent.value} onClick={() => selectEvent(one.event!)}>
            {eventName(one.event)}
          </button>
        )}
      </td>
    </tr>
  );
}

// The interval as a bar around a line at no gain; the words for those who do not see it.
function Interval(props: { one: TriedChange; most: number }) {
  const { one, most } = props;
  if (one.low === null || one.high === null) return <span class="quiet">–</span>;
  const at = (value: number) => 50 + (50 * value) / most;
  const label = `${signed(one.low)} to ${signed(one.high)}`;
  return (
    <svg class="advise-interval" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={label}>
      <title>{label}</title>
      <line x1={50} x2={50} y1={0} y2={10} class="zero" />
      <line x1={at(one.low)} x2={at(one.high)} y1={5} y2={5} class="range" />
      <circle cx={at(one.gain ?? 0)} cy={5} r={1.6} class="mean" />
    </svg>
  );
}
