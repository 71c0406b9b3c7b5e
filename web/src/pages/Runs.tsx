// Stands here until its own file is written, so that the page builds.
export default function Runs() {
  return <p class="quiet">Runs</p>;
}
