// What the words of a page mean, in place. Always true: one meaning for a word, whichever page shows it.

export type Term = keyof typeof MEANING;

const MEANING = {
  "preset": "a way of training under a name: a reward, a credit mechanism, a loss and what they train",
  "world": "a simulated task for a team, in which every run can be repeated and its optimum is known or bounded",
  "seed": "the number that all chance of a run comes from; runs with the same settings and another seed show how much is luck",
  "update": "one step of training: some episodes are played, then the policy is changed once",
  "reward": "what the team gets for a task, minus what its calls cost; the value that training raises",
  "in training": "the mean reward of the episodes of an update, with the policy as it then was",
  "held out": "the mean reward on tasks that are never trained on; the band is its 95 % interval over these tasks",
  "bound": "the optimum: the most that any policy can expect; where it cannot be computed, an upper bound that none can exceed. It is an expectation over all tasks, so that a policy may lie above it on those that were drawn",
  "of bound": "the reward as a share of the bound",
  "hand-made policies": "rules written by people, played on the same held-out tasks: reference (asks for another vote while it is worth its price), majority and first answer (the same, but answers are merged by majority vote, or the first is taken), serial (one worker), spawn all (as many workers as allowed), random",
  "alert": "training looks wrong here, for example nobody is called any more while the reward rises; the line says what to look at",
  "samples": "traces of single episodes that the run kept",
  "95 % CI": "an interval that holds the true mean in 95 of 100 such experiments: Student's over training seeds; with one seed, over tasks only",
  "calls per episode": "how many times workers are called for one task; calls are what budgets are counted in",
  "difference": "the mean of one side minus that of the baseline, paired by task, and by training seed where both have the same",
  "p": "how often a difference this large would come about by chance if there were none; p (Holm) is the same after correction for several comparisons",
  "better, worse, same": "on how many tasks this side has more, less or the same",
  "collapsed": "the share of seeds that ended with a team which calls nobody",
  "final": "the value on held-out tasks when the budget is spent, as a share of the bound",
  "area": "the mean height of the held-out curve over the whole budget: high for what learns early",
  "calls to q %": "what was spent when the curve first reached q % of the best value known in this world; the median over the seeds that did",
  "rank": "by the mean; in brackets the ranks that paired tests leave open",
  "point": "which settings ran: the published ones, or others that were chosen on other seeds and tasks",
  "minus grpo, minus counterpoint": "the difference from that baseline, paired by seed, in % of the bound",
  "best known": "the best mean that a method or a hand-made rule has reached in this world",
} as const;

/** What the charts of a run show, by the name in its metrics. */
const CHARTS: Record<string, string> = {
  charged: "what the budget was charged so far: calls of workers and rounds, forks included",
  agents: "agents per episode", rounds: "rounds per episode, until the team stopped",
  calls_per_episode: "calls of workers per episode", calls: "calls of workers so far, forks included",
  messages: "what messages cost per episode", kl: "how far an update moved the policy from the one that played, as a KL divergence",
  entropy: "how undecided the policy is, for each kind of decision; 0 is always the same choice",
  critics: "the loss of the critics, which predict what a decision is worth",
  ess: "the share of episodes that still count after they are weighted for an older policy (effective sample size)",
  loss: "what an update minimises", signals: "what the alerts watch, such as the share of work of the busiest agent (top share)",
  episodes: "episodes played so far", forks: "episodes that were played again from the middle, with one decision changed",
  decisions: "decisions taken so far", reward_se: "the standard error of the reward in training", lr: "the learning rate",
  tau: "the temperature of soft updates", stale: "by how many updates the policy that played was behind", seconds: "how long the update took",
  profile: "seconds of an update's parts: play, of which engine computed and wait had nothing to compute; credit; layout; forward, backward and optimiser; weights, until the engine has them. On a GPU parts overlap",
};

/** The meaning of a chart's title; null where it is a quantity of the world itself. */
export function chartMeaning(title: string): string | null {
  return CHARTS[title] ?? (/^R[1-8]$/.test(title) ? `the part of the reward that is ${title} of the survey's eight kinds` : null);
}

export function Terms(props: { of: readonly Term[]; charts?: readonly string[] }) {
  const charts = (props.charts ?? []).flatMap((title) => { const text = chartMeaning(title); return text ? [[title, text] as const] : []; });
  return (
    <details class="terms page-note">
      <summary>What the words mean</summary>
      <dl>{props.of.map((term) => <div key={term}><dt>{term}</dt><dd>{MEANING[term]}</dd></div>)}
        {charts.map(([title, text]) => <div key={title}><dt>{title.replaceAll("_", " ")}</dt><dd>{text}</dd></div>)}</dl>
    </details>
  );
}
