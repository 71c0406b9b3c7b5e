// Stands here until its own file is written, so that the page builds.
export default function Traces() {
  return <p class="quiet">Traces</p>;
}
