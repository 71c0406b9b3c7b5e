"""Messages as tokens: the tokeniser and the chat template of a model's folder, without torch and without transformers.

Always true: a folder's own Python code is never run, and its template runs in a sandbox. Text of a message cannot spell a token
that steers the model. Pieces between such tokens are encoded once and joined only where that gives the ids of the whole text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.lm.model import Message, ModelFailed
from counterpoint.lab.lm.sampling import END, FREE, SPACE, Start

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_KEPT = 100_000
"""Pieces of text whose tokens are remembered."""
_TRIED = "system\nYou are lead.\n\n  Two  spaces, a list:\n- x\nuser\n12 + 34 = 46; naïve 'quotes'\nassistant\n"


class Chat:
    """How a model reads a conversation and writes text."""

    def __init__(
        self, tokenizer: Tokenizer, *, template: str | None, ends: Sequence[int], names: Mapping[str, str] | None = None
    ) -> None:
        """`ends`: tokens that end an answer, the usual one first; `names`: special tokens by what the template calls them."""
        if not ends:
            raise InputError("the tokenizer names no token that ends an answer", fix="an eos_token in tokenizer_config.json")
        self.tokenizer, self.template, self.ends, self._names = tokenizer, template, tuple(ends), dict(names or {})
        special = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special and len(t.content) > 1]
        longest_first = "|".join(map(re.escape, sorted(special, key=len, reverse=True)))
        self._special = re.compile(f"({longest_first})") if special else None
        self._ids: dict[str, list[int]] = {}
        self._spelled: dict[str, tuple[int, ...]] = {}
        self._texts: dict[int, str] = {}
        self._rendered: Any = None if template is None else _compiled(template)
        self._is_plain = template is not None and _only_copies_content(template)
        self._skeletons: dict[tuple[str, ...], list[str] | None] = {}
        self._is_joined = self._special is not None and self._joins()

    @classmethod
    def read(cls, folder: Path | str) -> Chat:
        """The chat of a folder as `save_pretrained` writes it: tokenizer.json, tokenizer_config.json, perhaps config files."""
        from tokenizers import Tokenizer

        folder = Path(folder)
        file = folder / "tokenizer.json"
        if not file.is_file():
            fix = "a folder as `save_pretrained` of a fast tokenizer writes it"
            raise InputError("has no tokenizer.json", where=folder.name, fix=fix)
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare exceptions
            raise InputError("the tokenizer cannot be read", where=f"{folder.name}/tokenizer.json", why=str(error)) from error
        about = _json(folder / "tokenizer_config.json")
        names = {k: v for k in ("bos_token", "eos_token", "unk_token", "pad_token") if (v := _text(about.get(k)))}
        template = _template(folder, about)
        ends: list[Any] = []
        for name in ("generation_config.json", "config.json"):
            end_ids = _json(folder / name).get("eos_token_id")
            ends += end_ids if isinstance(end_ids, list) else [end_ids]
        ends += [tokenizer.token_to_id(names["eos_token"])] if "eos_token" in names else []
        # a token that the template opens or closes a turn with ends an answer too: what follows is not the model's to say
        special = {t.content: i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
        ends += [i for text, i in sorted(special.items()) if template and text in template]
        known = list(dict.fromkeys(e for e in ends if type(e) is int and e >= 0 and tokenizer.id_to_token(e) is not None))
        return cls(tokenizer, template=template, ends=known, names=names)

    @classmethod
    def bytes(cls) -> Chat:
        """A tokenizer of bytes with a ChatML template, for tiny models."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        raw = Tokenizer(models.BPE({token: i for i, token in enumerate([*special, *letters])}, []))
        raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        raw.add_special_tokens([AddedToken(token, special=True) for token in special])
        return cls(raw, template=CHATML, ends=(2, 1), names={"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.tokenizer.to_str(), self.template, self.ends, self._names)

    def save(self, folder: Path) -> None:
        """Write what `read` and transformers read."""
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(str(folder / "tokenizer.json"))
        about = {**self._names, "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        (folder / "tokenizer_config.json").write_text(json.dumps(about | {"chat_template": self.template}, indent=1) + "\n")

    # -- prompts -----------------------------------------------------------------------------------------------------

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt: by the chat template, or as `role: text` where there is none."""
        between = self._between(tuple([m.role for m in messages]))
        if between is not None:
            texts = [self._unsteered(m.text) for m in messages]
            return self._encoded("".join([text for pair in zip(between, [*texts, ""], strict=True) for text in pair]))
        plain = [{"role": m.role, "content": self._unsteered(m.text)} for m in messages]
        if self._rendered is None:
            text = "".join(f"{m['role']}: {m['content']}\n" for m in plain) + "assistant:"
            return list(self.tokenizer.encode(text, add_special_tokens=True).ids)
        return self._encoded(self._templated(plain))

    @property
    def writes_tools(self) -> bool:
        """Whether the template offers tools itself, and has calls written as `<tool_call>`."""
        return self.template is not None and "tools" in self.template and "<tool_call>" in self.template

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None, *, is_asked: bool = True
    ) -> list[int]:
        """The tokens of messages as OpenAI's protocol has them, tools and their calls included, by the chat template; with
        `is_asked` up to where the model answers."""
        if is_asked and not tools and all(m.keys() == {"role", "content"} and m["role"] != "tool" for m in messages):
            return self.prompt([Message(m["role"], m["content"]) for m in messages])
        if self._rendered is None:
            raise ModelFailed("refused", "the model has no chat template, and so no form for tools", fix="use another model")
        plain, offered = (_each_text(self._unsteered, list(x or ())) for x in (messages, tools))
        text = self._templated(plain, is_asked=is_asked, **({"tools": offered} if offered else {}))
        used = [*(tools or ()), *(call for m in messages for call in m.get("tool_calls") or ())]
        # most templates pass over what they do not know
        if not self.writes_tools and not all(str(one["function"]["name"]) in text for one in used):
            raise ModelFailed("refused", "the chat template has no form for tools", fix="use another model")
        return self._encoded(text)

    def lengths(self, text: str) -> list[int]:
        """Bytes of each token of a text, as `answer` encodes it; letters of several tokens count in each of them."""
        text = self._unsteered(text)
        return [len(text[a:b].encode()) for a, b in self.tokenizer.encode(text, add_special_tokens=False).offsets]

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text, remembered."""
        ids = self._ids.get(text)
        if ids is None:
            if len(self._ids) >= _KEPT:
                self._ids.clear()
            ids = self._ids[text] = list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; those that only steer the model have none."""
        return str(self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=True))

    def answer(self, text: str) -> list[int]:
        """The tokens of an answer that somebody else wrote, with the one that ends it."""
        return [*self.encode(self._unsteered(text)), self.ends[0]]

    def _unsteered(self, text: str) -> str:
        """A text in which no token that steers the model is spelled: an agent's words must not end its turn."""
        if self._special is None:
            return text
        return self._special.sub(lambda match: match[0][0] + " " + match[0][1:], text)

    def _encoded(self, text: str) -> list[int]:
        if not self._is_joined:
            return list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        assert self._special is not None
        out: list[int] = []
        for piece in self._special.split(text):
            if piece:
                out += self.encode(piece)
        return out

    def _joins(self) -> bool:
        """Whether pieces between special tokens can be encoded one by one."""
        assert self._special is not None
        special = next(t.content for t in self.tokenizer.get_added_tokens_decoder().values() if t.special and len(t.content) > 1)
        for text in (special + _TRIED + special + "\n" + special + _TRIED, _TRIED + special + " " + special):
            whole = self.tokenizer.encode(text, add_special_tokens=False).ids
            if whole != [i for piece in self._special.split(text) if piece for i in self.encode(piece)]:
                return False
        return True

    def _between(self, roles: tuple[str, ...]) -> list[str] | None:
        """What the template writes before, between and after the texts of messages of these roles, where their texts change none
        of it: rendering a long prompt costs more than all else that is done for a call."""
        if not self._is_plain:
            return None
        if roles not in self._skeletons:
            if len(self._skeletons) >= _KEPT:
                self._skeletons.clear()
            marks = [f"\ue000{i}\ue001" for i in range(len(roles))]
            text = self._templated([{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)])
            parts, places = re.split("\ue000\\d+\ue001", text), re.findall("\ue000\\d+\ue001", text)
            self._skeletons[roles] = parts if places == marks else None
        return self._skeletons[roles]

    def _templated(self, messages: list[dict[str, Any]], *, is_asked: bool = True, **more: Any) -> str:
        import jinja2

        def render(chat: list[dict[str, Any]]) -> str:
            return str(self._rendered.render(messages=chat, add_generation_prompt=is_asked, **more, **self._names))

        try:
            return render(messages)
        except jinja2.TemplateError as error:
            # Some templates want roles to take turns, and some know no system message: it then opens the user's first.
            turns = _in_turns(messages)
            for chat in (turns, _in_turns([{**turns[0], "role": "user"}, *turns[1:]])):
                try:
                    return render(chat)
                except jinja2.TemplateError:
                    continue
            what = f"the model's chat template refuses this prompt: {error}"
            raise ModelFailed("refused", what, fix="use another model") from error

    # -- the vocabulary ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Tokens that have a text; a network may have room for more."""
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    def token_text(self, token: int) -> str:
        """What one token says where others stand before it; of one that steers the model, how it is spelled."""
        text = self._texts.get(token)
        if text is None:
            anchor = self.encode("a")
            text = self.decode([*anchor, token])[len(self.decode(anchor)) :] or str(self.tokenizer.id_to_token(token) or "")
            self._texts[token] = text
        return text

    def token_bytes(self, token: int) -> list[int]:
        """What one token says, in bytes: a character may be spelled by several tokens."""
        raw = str(self.tokenizer.id_to_token(token) or "")
        if "\ufffd" in self.token_text(token) and all(letter in _BYTE_OF for letter in raw):
            return [_BYTE_OF[letter] for letter in raw]
        return list(self.token_text(token).encode())

    @cached_property
    def lines(self) -> frozenset[int]:
        """Tokens with a line break in them."""
        texts = self.tokenizer.decode_batch([[i] for i in range(self.size)], skip_special_tokens=True)
        return frozenset(i for i, text in enumerate(texts) if "\n" in text)

    @cached_property
    def after_space(self) -> np.ndarray:
        """Which tokens begin with a space, bool [size]."""
        anchor = self.encode("a")
        head = self.decode(anchor) + " "
        texts = self.tokenizer.decode_batch([[*anchor, i] for i in range(self.size)], skip_special_tokens=True)
        return np.array([text.startswith(head) for text in texts])

    def starts(self, texts: Sequence[str]) -> tuple[Start, ...]:
        """How an answer may begin, as tokens: whole lines end with a line break or with the token that ends an answer; after the
        others text follows freely. A start that ends with one space is held without it, and its next token begins with a space:
        tokenisers write ` Paris`, not ` ` and `Paris`."""
        return tuple(start for _, start in self._starts(texts))

    def _starts(self, texts: Sequence[str]) -> list[tuple[str, Start]]:
        out = []
        for text in texts:
            held = text[:-1]
            if text.endswith("\n"):
                ended = (*(self._spell(held) if held else ()), self.ends[0])
                out += [(text, Start(self._spell(text), END)), (text, Start(ended, END))]
            elif text.endswith(" ") and not held[-1:].isspace() and self._goes_on_with_space(text, texts):
                out.append((text, Start(self._spell(held), SPACE)))
            else:
                out.append((text, Start(self._spell(text), FREE)))
        return out

    def _goes_on_with_space(self, text: str, texts: Sequence[str]) -> bool:
        """Whether every start that begins like this one, but for its last space, goes on with that space."""
        held = text[:-1]
        return bool(held) and all(other.startswith(text) for other in texts if other.startswith(held))

    def start_logps(self, texts: Sequence[str], logps: Sequence[float]) -> tuple[float, ...]:
        """Log-probability of each text, from those of the ways to write them that `starts` gives."""
        out = dict.fromkeys(texts, -math.inf)
        for (text, _), logp in zip(self._starts(texts), logps, strict=True):
            out[text] = float(np.logaddexp(out[text], logp))
        return tuple(out[text] for text in texts)

    def begun(self, texts: Sequence[str], ids: Sequence[int]) -> tuple[str, int, bool]:
        """Which of the starts an answer began with, how many tokens that took, and whether it is the whole answer."""
        fits = [(len(s.ids), text, s.then) for text, s in self._starts(texts) if tuple(ids[: len(s.ids)]) == s.ids]
        fits = [(n, text, then) for n, text, then in fits if then != END or n == len(ids)]
        if not fits:
            return "", 0, False
        n, text, then = max(fits)
        return text, n, then == END

    def _spell(self, text: str) -> tuple[int, ...]:
        if text not in self._spelled:
            ids = tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)
            if not ids or self.decode(ids) != text:
                raise ModelFailed("refused", f"the model's tokeniser cannot spell the start {text!r}", fix="use another model")
            self._spelled[text] = ids
        return self._spelled[text]


def _again(tokenizer: str, template: str | None, ends: Sequence[int], names: Mapping[str, str]) -> Chat:
    """The same, in another process."""
    from tokenizers import Tokenizer

    return Chat(Tokenizer.from_str(tokenizer), template=template, ends=ends, names=names)


def _each_text(change: Callable[[str], str], value: Any) -> Any:
    """The same value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _each_text(change, item) for name, item in value.items()}
    return [_each_text(change, item) for item in value] if isinstance(value, list) else value


def _byte_letters() -> dict[str, int]:
    """How tokenisers of bytes spell each byte: those that can be seen as themselves, the others from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + k): byte for k, byte in enumerate(rest)}


_BYTE_OF = _byte_letters()


def _in_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with messages of one role that follow each other made one."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and out[-1]["role"] == message["role"]:
            out[-1] = {**message, "content": out[-1]["content"] + "\n\n" + message["content"]}
        else:
            out.append(dict(message))
    return out


def _compiled(template: str) -> Any:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    env.globals["raise_exception"] = refuse
    try:
        return env.from_string(template)
    except jinja2.TemplateError as error:
        raise InputError("the chat template cannot be read", why=str(error), fix="use another model") from error


def _only_copies_content(template: str) -> bool:
    """Whether a template does nothing with the text of a message but write it: then the rest depends on the roles alone.

    Only loops, conditions and sums are followed; a template with anything else may do anything.
    """
    import jinja2
    from jinja2 import nodes

    parts = (nodes.Getattr, nodes.Getitem)
    known = (
        *parts, nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Name, nodes.Const, nodes.Add,
        nodes.Concat, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
    )  # fmt: skip

    def name(node: nodes.Node) -> Any:
        """The fixed name by which a part of something is taken."""
        if isinstance(node, nodes.Getattr):
            return node.attr
        return node.arg.value if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) else None

    def content_uses(node: nodes.Node) -> int:
        """How often a message's text is written as it is."""
        if isinstance(node, nodes.Output | nodes.Add | nodes.Concat):
            return sum(map(content_uses, node.iter_child_nodes()))
        return int(name(node) == "content")

    try:
        tree = jinja2.Environment().parse(template)
    except jinja2.TemplateError:
        return False
    every = [tree, *tree.find_all(nodes.Node)]
    used = sum(name(node) == "content" for node in every)
    named = {n.name for n in every if isinstance(n, nodes.Name) and n.ctx == "store"} | {"messages"}
    # A message that stands somewhere whole, or of which a part is taken by a name that is computed, may carry its text anywhere.
    apart = [id(n.node) for n in every if isinstance(n, parts) and name(n) is not None]
    apart += [id(n.iter) for n in every if isinstance(n, nodes.For)]
    whole = [n for n in every if isinstance(n, nodes.Name) and n.ctx == "load" and n.name in named and id(n) not in apart]
    return all(isinstance(n, known) for n in every) and used == sum(map(content_uses, tree.find_all(nodes.Output))) and not whole


def _template(folder: Path, about: Mapping[str, Any]) -> str | None:
    apart = folder / "chat_template.jinja"
    if apart.is_file():
        return apart.read_text()
    template = about.get("chat_template")
    if isinstance(template, list):  # several by name
        template = next((t.get("template") for t in template if t.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _json(file: Path) -> dict[str, Any]:
    try:
        table = json.loads(file.read_text()) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise InputError("cannot be read", where=f"{file.parent.name}/{file.name}", why=str(error)) from error
    return table if isinstance(table, dict) else {}


def _text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token
