// What each agent cost and what became of its work. Always true: the numbers are those of `counterpoint credit`, and what is
// not recorded is said; it shares nothing out, and says so where nobody can say who earned the outcome.
import { Note, useLoaded, Waiting } from "../loaded";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { Work as Answer } from "../shapes.gen";
import { selectAgent, selectedAgent, source, trace } from "../state";

export function Work() {
  const { id } = trace.value!;
  const { data, problem } = useLoaded(`${id}/work`, id, () => source.value!.panel<Answer>(id, "work"));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Following what each agent wrote" />;
  return (
    <section class="work" aria-label="What became of each agent's work">
      <h3>What each agent cost, and what became of its work</h3>
      <p><Plain text={data.headline} /></p>
      {data.why_no_credit && <p class="note"><Note text={`Who earned the outcome is not identified: ${data.why_no_credit}.`} /></p>}
      <ul class="work-list">
        {data.rows.map((row) => (
          <li key={row.agent}>
            <button type="button" class="plain" aria-pressed={selectedAgent.value === row.agent} onClick={() => selectAgent(row.agent)}>
              <bdi>{row.name}</bdi></button> <span class="quiet"><Plain text={row.spent} /></span>
            <p><Plain text={row.became} /></p>
            {row.lines > 0 && <span class="work-bar" style={{ width: `${row.lines * 100}%` }} />}
          </li>
        ))}
      </ul>
      {data.notes.map((note) => <p key={note} class="quiet"><Note text={note} /></p>)}
    </section>
  );
}
