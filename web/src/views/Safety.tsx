// Stands here until its own file is written, so that the page builds.
export default function Safety() {
  return <p class="quiet">Safety</p>;
}
