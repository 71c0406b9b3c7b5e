// Stands here until its own file is written, so that the page builds.
export default function Live() {
  return <p class="quiet">Live</p>;
}
