// What OpenAI's JavaScript client gets from an endpoint: `node openai_client.mjs URL`, one JSON object on stdout.
import OpenAI from "openai"

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 })
const asked = { model: "tiny", messages: [{ role: "user", content: "who?" }], max_tokens: 20, seed: 7 }
const out = {}

const whole = await client.chat.completions.create({ ...asked, n: 2, logprobs: true, top_logprobs: 2 })
out.texts = whole.choices.map((choice) => choice.message.content)
out.alternatives = whole.choices[0].logprobs.content.map((token) => token.top_logprobs.length)
out.usage = whole.usage

const stream = await client.chat.completions.create({ ...asked, n: 2, stream: true, stream_options: { include_usage: true } })
out.streamed = ["", ""]
for await (const piece of stream) {
  for (const choice of piece.choices) out.streamed[choice.index] += choice.delta.content ?? ""
  if (piece.usage) out.streamedUsage = piece.usage
}

const stop = out.texts[0].match(/[A-Za-z :]{2,3}/)[0]
const stopped = await client.chat.completions.create({ ...asked, stop: [stop] })
out.stopped = [stopped.choices[0].message.content, stopped.choices[0].finish_reason, stop]

const parameters = { type: "object", properties: { colour: { enum: ["red", "blue"] } }, required: ["colour"] }
const runner = client.chat.completions.runTools({
  ...asked,
  tool_choice: { type: "function", function: { name: "paint" } },
  tools: [{ type: "function", function: { name: "paint", parameters, parse: JSON.parse, function: ({ colour }) => (out.painted = colour) } }],
  stream: true,
})
await runner.done()

out.completion = (await client.completions.create({ model: "tiny", prompt: "SPAWN", max_tokens: 5, seed: 1 })).choices[0].text
out.models = (await client.models.list()).data.map((model) => model.id)
try {
  await client.chat.completions.create({ ...asked, temperature: 9 })
} catch (error) {
  out.error = [error.status, error.param, error instanceof OpenAI.BadRequestError]
}
console.log(JSON.stringify(out))
