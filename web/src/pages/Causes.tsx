// What recurs over the runs of the list. Always true: the causes are those of `counterpoint blame --causes` for the same query, and
// the line above says how many runs were judged and how many were not.
import { signal } from "@preact/signals";
import { useLoaded, Waiting } from "../loaded";
import { count, plain } from "../numbers";
import { Plain } from "../plaintext";
import { traceLink } from "../router";
import { Link } from "../shell/Link";
import { Failure } from "../shell/states";
import { source } from "../state";
import "./causes.css";

export const areCausesShown = signal(false);

export function Causes(props: { query: string }) {
  const { data, problem } = useLoaded("causes", props.query, () => source.value!.causes(props.query));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Judging the failed runs" />;
  const left = data.left_out ? `, ${count(data.left_out, "run")} left out: succeeded, no outcome stated, still running, or very long` : "";
  return (
    <section class="causes" aria-label="Why they failed">
      <p class="quiet">{count(data.judged, "failed run")} judged{data.unclear ? `, in ${data.unclear} no step stands out` : ""}{left}. Expected adds up the share of each run's first suspect.</p>
      {data.causes.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Suspected cause</th><th scope="col">Of</th><th scope="col" class="number">Runs</th>
              <th scope="col" class="number">Expected</th><th scope="col">Such as</th>
            </tr>
          </thead>
          <tbody>
            {data.causes.map((one) => (
              <tr key={`${one.words} ${one.who}`}>
                <th scope="row">{one.words}</th>
                <td><bdi>{one.who}</bdi></td>
                <td class="number">{one.runs}</td>
                <td class="number">{plain(one.expected, 2)}</td>
                <td>
                  <Link to={traceLink(one.example, { view: "blame", event: one.event })}><bdi>{one.event}</bdi></Link>
                  {" "}<span class="quiet"><Plain text={one.reason} /></span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
