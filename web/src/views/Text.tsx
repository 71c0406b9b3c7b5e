// Stands here until its own file is written, so that the page builds.
export default function Text() {
  return <p class="quiet">Text</p>;
}
