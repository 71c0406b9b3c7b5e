// Tokens that each agent wrote. Always true: the rows are those of `app/viewer/panels/plugin_name.py`, in its order.
import { useLoaded, Waiting } from "../loaded";
import { count } from "../numbers";
import { Failure } from "../shell/states";
import type { PluginNameRows } from "../shapes.gen";
import { source, trace } from "../state";
import "../views/views.css";

export default function PluginName() {
  const { id } = trace.value!;
  const { data, problem } = useLoaded(id, id, () => source.value!.panel<PluginNameRows>(id, "plugin_name"));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Counting tokens" />;
  return (
    <section aria-label="Plugin name">
      <table>
        <thead>
          <tr><th scope="col">Agent</th><th scope="col">Wrote</th></tr>
        </thead>
        <tbody>
          {data.rows.map((row) => <tr key={row.agent}><td>{row.agent}</td><td>{count(row.tokens, "token")}</td></tr>)}
        </tbody>
      </table>
    </section>
  );
}
