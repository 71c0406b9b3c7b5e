// Stands here until its own file is written, so that the page builds.
export default function Time() {
  return <p class="quiet">Time</p>;
}
