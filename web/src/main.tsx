import { render } from "preact";

render(<main>Counterpoint</main>, document.getElementById("app")!);
