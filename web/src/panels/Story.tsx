// The run for everybody. Always true: the words are the server's and the trace's; a text that is cut says how long it is; what is not
// recorded is said to be; printed, the page is the story and nothing else.
import { useLoaded, Waiting } from "../loaded";
import { count } from "../numbers";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { Story as Told, StoryAgent, StoryText } from "../shapes.gen";
import { selectAgent, selectEvent, source, trace } from "../state";
import "./story.css";

const MANY = 12;

export default function Story() {
  const { id } = trace.value!;
  const { data, problem } = useLoaded(id, id, () => source.value!.panel<Told>(id, "story"));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Telling the story" />;
  return (
    <section class={data.agents.length > MANY ? "story is-many" : "story"} aria-label="Story">
      <header>
        <h2><Plain text={data.title} /></h2>
        <p class="quiet">{data.summary} <button type="button" class="story-print" onClick={() => window.print()}>Print</button></p>
      </header>
      <ol>{data.agents.map((one) => <Part key={one.agent} one={one} />)}</ol>
      {data.left_out > 0 && <p class="quiet">{count(data.left_out, "more agent")} not shown.</p>}
    </section>
  );
}

function Part(props: { one: StoryAgent }) {
  const { one } = props;
  return (
    <li class="story-part">
      <h3><button type="button" class="plain" onClick={() => selectAgent(one.agent)}><bdi>{one.name}</bdi></button>{" "}
        <small class="quiet">{one.spent}</small></h3>
      <dl>
        <div><dt>was given{one.given?.agent && <> by <bdi>{one.given.agent}</bdi></>}</dt><dd><Handed of={one.given} /></dd></div>
        <div><dt>did</dt>
          <dd>{one.did.length > 0 ? <Plain text={one.did.join(", ")} /> : <span class="quiet">No act of it is recorded.</span>}
            {one.note && <span class="quiet"> {one.note}</span>}</dd></div>
        <div><dt>gave back{one.gave?.agent && <> to <bdi>{one.gave.agent}</bdi></>}</dt><dd><Handed of={one.gave} /></dd></div>
      </dl>
    </li>
  );
}

function Handed(props: { of: StoryText | null }) {
  const { of } = props;
  if (!of) return <span class="quiet">Nothing is recorded.</span>;
  return (
    <>
      <button type="button" class="plain story-text" onClick={() => selectEvent(of.event)}><Plain text={of.text} /></button>
      {of.length > [...of.text].length && <small class="quiet"> … the beginning of {of.length.toLocaleString("en")} characters</small>}
    </>
  );
}
