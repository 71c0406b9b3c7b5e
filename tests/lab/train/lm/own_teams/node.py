"""A team in JavaScript, in a process of its own."""

import subprocess

CODE = """
const ask = async (system, text) => {
  const answer = await fetch(process.env.OPENAI_BASE_URL + "/chat/completions", {
    method: "POST",
    headers: {"content-type": "application/json", authorization: "Bearer " + process.env.OPENAI_API_KEY},
    body: JSON.stringify({model: "m", max_tokens: 6, messages: [{role: "system", content: system}, {role: "user", content: text}]}),
  });
  return (await answer.json()).choices[0].message.content;
};
(async () => {
  const found = await Promise.all([ask("You are a scout.", process.argv[1]), ask("You are a critic.", process.argv[1])]);
  console.log(await ask("You merge.", found.join(" ")));
})();
"""


def team(question: str) -> str:
    return subprocess.run(["node", "-e", CODE, question], capture_output=True, text=True, check=True).stdout
