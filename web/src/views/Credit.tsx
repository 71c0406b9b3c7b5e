// Stands here until its own file is written, so that the page builds.
export default function Credit() {
  return <p class="quiet">Credit</p>;
}
