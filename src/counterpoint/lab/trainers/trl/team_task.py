"""A team task on which sharing a reward is slow or wrong, learnt with TRL: what `counterpoint reproduce under-trl` runs.

    python -m counterpoint.lab.trainers.trl.team_task ARM START STEPS RUN [RUN ...]     # a line of JSON for each run

A lead says how many workers it calls, up to eight; each gets another question and answers with one token, of which one is right.
The team is paid an eighth for each right answer, less the price of each worker. A wrong worker costs, a right one pays: the lead
is to call all of them once they know. Who answered is a noise for everybody else who is paid the same.

    reward/K     each of the K rows has R / K, and all rows of a task are compared       (what slime, vime and miles do)
    identical    each row has R, rollouts are compared                                   (GRPO)
    dr-mas       each row has R, every agent is compared with itself                     (arXiv:2602.08847)
    computed     each agent has what the team loses without it, by the checker, compared with itself

With $COUNTERPOINT_LM (a name that `counterpoint models` lists, or a folder) that model learns, on the GPU if there is one; else
a Llama of two layers on a CPU.

Always true: start and run name the draws: tiny weights, and which answers are right, come from the start alone. Runs of all arms
see the same tasks.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout
from counterpoint.lab.trainers.trl.team_grpo import TeamGRPOTrainer

MOST = 8
PRICE = 0.03
ITEMS = [f"item{i}" for i in range(MOST)]
ANSWERS = [f"answer{i}" for i in range(MOST)]
COUNTS = [f"call{i}" for i in range(1, MOST + 1)]
_ROW = ("rollout", "prompt", "agent", "name", "parent", "text", "word", "logprobs")
WORDS = ["<pad>", "<eos>", "lead", "worker", *ITEMS, *ANSWERS, *COUNTS]


class Speech(NamedTuple):
    """How a model says the task's words, each of them one token, and how it is asked."""

    tokenizer: Any
    texts: Mapping[str, str]
    lead: str = "lead"
    worker: str = "worker {}"

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def token(self, word: str) -> int:
        """The one token of a word of the task."""
        ids = self.ids(self.texts[word])
        if len(ids) != 1:
            what = f"{self.texts[word]!r} is {len(ids)} tokens"
            raise InputError(what, where="the model's tokenizer", fix="a model whose tokenizer knows English words")
        return ids[0]


def right_answers(start: int) -> dict[str, str]:
    """The answer that is right for each item."""
    return dict(zip(ITEMS, np.random.default_rng([start, 1]).permutation(ANSWERS).tolist(), strict=True))


def team_score(counts: int, answers: dict[str, str], right: dict[str, str]) -> float:
    """What a team is paid that called so many workers and has these answers of them."""
    return sum(right[item] == said for item, said in answers.items()) / MOST - PRICE * counts


def without(rollout: Rollout, agent: str) -> float:
    """The score of a run, checked again without one agent: without the lead there is no team."""
    about = rollout.about[0]
    rest = {item: said for item, said in about["answers"].items() if item != agent}
    return 0.0 if agent == "lead" else team_score(len(rest), rest, about["right"])


def layer_of(arm: str) -> CreditLayer:
    """The credit of an arm."""
    layers = {
        "reward/K": lambda: CreditLayer("uniform", against="task"),
        "identical": lambda: CreditLayer("group_relative", convention="trl"),
        "dr-mas": lambda: CreditLayer("agent_wise", convention="trl"),
        "computed": lambda: CreditLayer("difference", counterfactual=without, against="agent"),
    }
    if arm not in layers:
        raise InputError(f"no arm {arm!r}", fix=did_you_mean(arm, layers))
    return layers[arm]()


ARMS = ("reward/K", "identical", "dr-mas", "computed")


class Team:
    """Plays the teams of a batch with the trainer's weights: TRL's `rollout_func`."""

    def __init__(self, speech: Speech, start: int, run: int) -> None:
        self.speech, self.right = speech, right_answers(start)
        self.draw = torch.Generator().manual_seed(1_000_003 * start + run)
        self.scores: list[float] = []

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """The rows of one run for each prompt: the lead's, and one for each worker that it called."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        lead, worker = self.speech.lead, self.speech.worker
        said, logps = self._say(model, [lead] * len(prompts), COUNTS)
        rows: dict[str, list[Any]] = {key: [] for key in _ROW}
        for i, (word, logp) in enumerate(zip(said, logps, strict=True)):
            self._row(rows, i, "lead", None, lead, word, logp)
        asked = [(i, ITEMS[k]) for i, word in enumerate(said) for k in range(COUNTS.index(word) + 1)]
        answers: list[dict[str, str]] = [{} for _ in prompts]
        for (i, item), word, logp in zip(asked, *self._say(model, [worker.format(x) for _, x in asked], ANSWERS), strict=True):
            answers[i][item] = word
            self._row(rows, i, item, "lead", worker.format(item), word, logp)
        scores = [team_score(len(own), own, self.right) for own in answers]
        self.scores.append(float(np.mean(scores)))
        texts, words = rows.pop("text"), rows.pop("word")
        own = [rows["rollout"], [scores[i] for i in rows["rollout"]], [answers[i] for i in rows["rollout"]]]
        return {
            **rows, "prompt_ids": [self.speech.ids(text) for text in texts], "reward": own[1], "answers": own[2],
            "completion_ids": [[self.speech.token(word)] for word in words], "right": [self.right] * len(texts),
            "task": [prompts[i] for i in rows["rollout"]],
        }  # fmt: skip

    def _row(self, rows: dict[str, list[Any]], i: int, agent: str, parent: str | None, text: str, word: str, logp: float) -> None:
        values = (i, i, agent, agent, parent, text, word, [logp])
        for key, value in zip(rows, values, strict=True):
            rows[key].append(value)

    def _say(self, model: Any, texts: Sequence[str], words: Sequence[str]) -> tuple[list[str], list[float]]:
        """One word for each text, drawn from what the model holds likely among those it may say."""
        if not texts:
            return [], []
        known = list(dict.fromkeys(texts))
        allowed = [self.speech.token(word) for word in words]
        asked = [torch.tensor([self.speech.ids(text)], device=model.device) for text in known]
        with torch.no_grad():
            likely = [model(ids).logits[0, -1].float().log_softmax(-1) for ids in asked]
        table = torch.stack(likely)[:, allowed].cpu()
        rows = table[[known.index(text) for text in texts]]
        drawn = torch.multinomial(rows.softmax(-1), 1, generator=self.draw)[:, 0]
        return [words[k] for k in drawn.tolist()], rows.gather(1, drawn[:, None])[:, 0].tolist()


def tiny_model(start: int) -> tuple[Any, Any]:
    """A Llama of two layers that knows the task's words, and its tokenizer."""
    torch.manual_seed(start)
    plain = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    plain.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
    shape = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=16, tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(shape), tokenizer


ENGLISH = {
    **dict(zip(COUNTS, (" one", " two", " three", " four", " five", " six", " seven", " eight"), strict=True)),
    **dict(zip(ANSWERS, (" red", " blue", " green", " black", " white", " brown", " yellow", " gray"), strict=True)),
}


def pretrained(name: str) -> tuple[Any, Speech]:
    """A model of the user's, with the task in English."""
    from counterpoint.lab.lm.conversion import ready_folder
    from counterpoint.lab.lm.weights import find

    folder = ready_folder(find(name))
    local = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **local)
    tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    speech = Speech(tokenizer, ENGLISH, "How many workers are called? Answer:", "Which colour has {}? Answer:")
    if len({speech.token(word) for word in ENGLISH}) < len(ENGLISH):
        raise InputError("words that are the same token", where=str(folder), fix="a model whose tokenizer knows English words")
    return model, speech


def row_rewards(completions: Sequence[Any], reward: Sequence[float], **_: Any) -> list[float]:
    """TRL's reward function: what the team was paid stands beside each row."""
    return list(reward)


def _tiny(start: int) -> tuple[Any, Speech]:
    model, tokenizer = tiny_model(start)
    return model, Speech(tokenizer, {word: word for word in WORDS})


def learn(arm: str, start: int, run: int, *, steps: int) -> dict[str, Any]:
    """One run: the mean score of the teams at the end and at the beginning, and of the best team there could be."""
    torch.set_num_threads(1)
    name = os.environ.get("COUNTERPOINT_LM")
    model, speech = pretrained(name) if name else _tiny(start)
    team, teams = Team(speech, start, run), 32
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder, per_device_train_batch_size=teams, num_generations=teams, max_steps=steps, beta=0.0, bf16=False, seed=run,
            learning_rate=1e-4 if name else 1e-2, use_cpu=not (name and torch.cuda.is_available()), gradient_checkpointing=False,
            lr_scheduler_type="constant", report_to=[],
            logging_steps=steps, save_strategy="no", disable_tqdm=True, max_completion_length=4,
        )  # fmt: skip
        tasks = Dataset.from_dict({"prompt": ["lead"] * teams})
        trainer = TeamGRPOTrainer(
            model, row_rewards, args, train_dataset=tasks, processing_class=speech.tokenizer, rollout_func=team,
            layer=layer_of(arm),
        )  # fmt: skip
        trainer.train()
    least = max(1, steps // 10)
    best = max(n / MOST - PRICE * n for n in range(MOST + 1))
    ends = [float(np.mean(team.scores[-least:])), float(np.mean(team.scores[:1]))]
    return {"arm": arm, "start": start, "run": run, "score": ends[0], "before": ends[1], "best": best}


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    asked, first, count, *runs = sys.argv[1:]
    for one in runs:
        print(json.dumps(learn(asked, int(first), int(one), steps=int(count))), flush=True)
