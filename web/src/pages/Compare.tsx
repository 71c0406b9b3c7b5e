// Stands here until its own file is written, so that the page builds.
export default function Compare() {
  return <p class="quiet">Compare</p>;
}
