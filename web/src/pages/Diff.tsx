// Stands here until its own file is written, so that the page builds.
export default function Diff() {
  return <p class="quiet">Diff</p>;
}
