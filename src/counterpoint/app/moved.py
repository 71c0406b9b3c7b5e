"""Old names of commands and flags, and what replaces them.

Always true: an old name runs nothing; it ends with exit code 2 and one message that names the new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.errors import InputError

COMMANDS = {
    "annotate": "notes add",
    "check": "store check",
    "corpus": "papers",
    "corpus add": "papers check",
    "corpus bib": "papers show --to bib",
    "corpus claims": "papers show claims",
    "corpus errata": "papers show errata",
    "corpus problems": "papers show problems",
    "corpus stats": "papers ls",
    "dataset": "notes dataset",
    "diff": "compare traces",
    "failures": "audit --failures",
    "inject": "bench inject",
    "judge": "notes judge",
    "plot": "compare plot",
    "prompts": "train prompts",
    "push": "store push",
    "record": "play",
    "rm": "store rm",
    "schema": "store schema",
    "score": "notes score",
    "serve-model": "models serve",
    "world": "train worlds",
    "world run": "play --world",
}
"""Old command to new command; of two words the longer entry wins."""

_ROWS = {"--limit": "--rows"}
_AUTHOR = {"--by": "--author"}
_SET = {"--option": "--set"}
_MODEL = {"--budget-tokens": "--cap tokens=N", "--key-env": "--model-set key_env=NAME"}
_CAPS = {"--limit": "--cap"}
_CLIENTS = {
    "--claude-code": "--client claude_code", "--codex": "--client codex", "--project": "--scope project",
    "--local": "--scope local", "--user": "--scope user",
}  # fmt: skip

FLAGS: dict[str, dict[str, str]] = {
    "advise": {
        **_ROWS, **_MODEL, "--budget": "--cap trials=N", "--kinds": "--kind", "--say": "--message", "--rank": "--sort",
        "--sure": "--confidence",
    },
    "audit": {
        "--by": "--group", "--price-token": "--set price_token=USD", "--price-tool": "--set price_tool=USD",
        "--alike": "--similarity",
    },
    "blame": {**_ROWS, **_MODEL, "--anyway": "--all", "--causes": "--summary", "--draws": "--samples"},
    "credit": {
        **_ROWS, **_MODEL, **_SET, "--method": "--mechanism", "--methods": "--mechanism", "--compare": "--mechanism M1,M2",
    },
    "demo": {"--to": "--output", "--tasks": "--episodes", "--budget": "--cap calls=N"},
    "export": {
        **_SET, "--credit": "--mechanism", "--html": "--to html -o FILE", "--agents": "--agent", "--no-mask": "--mask off",
        "--report": "--full", "--force": "--overwrite",
    },
    "fork": {"--key-env": _MODEL["--key-env"], "--delete": "--do delete", "--edit": "--do edit", "--force": "--decide"},
    "guard check": _CAPS,
    "guard hook": _CAPS,
    "guard install": {**_CAPS, **_CLIENTS},
    "guard learn": {"--out": "--output", "--round-minutes": "--set round_minutes=M", "--cost": "--set cost=SHARE"},
    "guard replay": _CAPS,
    "guard status": _ROWS,
    "guard uninstall": _CLIENTS,
    "import": {"--limit": "--newest", "--last": "--newest", "--again": "--reread", "--jobs": "--workers", "--follow": "watch"},
    "ls": {"--limit": "--newest", "--facets": "--group all"},
    "new": {"--into": "--output"},
    "notes add": {**_AUTHOR, "--remove": "notes remove"},
    "notes dataset save": {**_AUTHOR, "--frozen": "notes dataset add"},
    "notes score": {**_AUTHOR, "--proposal": "--accept"},
    "report": {"--html": "--output", "--no-mask": "--mask off"},
    "serve": {
        "--max-body": "--set max_body=SIZE", "--timeout": "--set timeout=S", "--idle": "--set idle=S",
        "--keep": "--set keep=HOURS",
    },
    "show": {"--all": "--full"},
    "sql": {**_ROWS, "--csv": "--to csv"},
    "steer": {
        **_MODEL, "--text": "--message", "--budget": "--cap trials=N", "--timeout": "--wait", "--no-wait": "--wait 0",
        "--no-tree": "--tree no",
    },
    "store check": _ROWS,
    "store compact": {"--now": "--purge"},
    "store info": {"--days": "--rows"},
    "store rm": {"--now": "--purge"},
    "top": {**_ROWS, "--by": "--sort", "--unfold": "--full", "--of": "--events-of"},
    "view": {"--token": "--token-file"},
    # of the laboratory
    "bench attack": {"--budget": "--cap runs=N", "--option": "--model-set"},
    "bench card": {"--html": "--output"},
    "bench inject": {
        "--count": "--samples", "--harmless": "--set harmless=true", "--key-env": "--model-set key_env=NAME",
        "--subtlety": "--set subtlety=X", "--success": "--set success=X",
    },
    "bench leaderboard": {"--html": "--output"},
    "bench run": {
        "--again": "--overwrite", "--limit-s": "--cap seconds=N", "--only": "bench run SUITE CELL...", "--option": "--model-set",
        "--out": "--output",
    },
    "compare": {
        "--all": "compare methods", "--anyway": "compare runs --ignore-mismatch", "--baseline": "compare runs --baseline",
        "--metric": "compare runs --metric", "--plan": "compare methods --plan", "--presets": "compare presets",
        "--released": "compare standings released", "--show": "compare standings", "--suite": "compare methods --suite",
        "--traces": "compare traces",
    },
    "compare methods": {
        "--address": "--runner ray:HOST:PORT", "--budget": "--cap calls=N", "--export": "compare standings -o FILE.jsonl",
        "--only": "compare methods METHOD...", "--out": "--output", "--released": "compare standings released",
        "--show": "compare standings", "--table": "compare standings -o FILE.md", "--worlds": "--world",
    },
    "compare plot": {"--force": "--overwrite", "--what": "--kind"},
    "compare presets": {"--anyway": "--ignore-mismatch", "--budget": "--cap calls=N", "--out": "--output"},
    "compare runs": {"--anyway": "--ignore-mismatch"},
    "models": {"--runs": "models ls RUN"},
    "models shrink": {"--rank": "models shrink RUN FOLDER RANK"},
    "notes judge": {
        "--budget-tokens": "--cap tokens=N", "--concurrency": "--model-set concurrency=N", "--context": "--cap context=N",
        "--key-env": "--model-set key_env=NAME", "--price": "--model-set price=IN,OUT", "--rubric-example": "notes rubric",
    },
    "papers ls": {
        "--category": "papers ls category:WORD", "--core": "papers ls core:yes", "--credit": "papers ls credit:UNIT",
        "--excluded": "papers ls excluded:yes",
        "--form": "papers ls form:WORD", "--reward": "papers ls reward:R1", "--rl": "papers ls rl:yes",
        "--scenario": "papers ls scenario:WORD",
        "--text": "papers ls WORDS", "--year": "papers ls year:2025",
    },
    "play": {
        "--budget-seconds": "--cap seconds=N", "--budget-tokens": "--cap tokens=N", "--budget-usd": "--cap usd=N",
        "--concurrency": "--model-set concurrency=N", "--device": "--model-set device=cuda", "--guard": "--limits",
        "--harness": "--model-set harness=tools", "--key-env": "--model-set key_env=NAME", "--limit": "--cap",
        "--pace": "--model-set pace=real", "--price": "--model-set price=IN,OUT",
        "--propensities": "--model-set propensities=true", "--retries": "--model-set retries=N", "--rpm": "--model-set rpm=N",
        "--timeout": "--model-set timeout_s=N", "--token-ids": "--model-set token_ids=true", "--tpm": "--model-set tpm=N",
        "--width": "--cap width=N",
    },
    "reproduce": {"--all": "reproduce all", "--list": "reproduce"},
    "train": {
        "--from": "train log --store", "--list": "train presets", "--lm": "train lm --model", "--preset": "train net --preset",
        "--resume": "train resume", "--world": "train net --world",
    },
    "train lm": {
        "--adapters": "--set adapters=shared", "--address": "--runner ray:HOST:PORT", "--credit": "--mechanism",
        "--device": "--set device=cuda", "--lm": "--model", "--log": "--tracker", "--out": "--output", "--push": "--to",
        "--resume": "train resume", "--updates": "--cap updates=N", "--where": "--set imitate.where=QUERY",
    },
    "train log": {"--budget": "--cap calls=N", "--from": "--store", "--log": "--tracker", "--out": "--output", "--push": "--to",
                  "--staleness": "--set staleness=N", "--updates": "--cap updates=N", "--where": "train log QUERY"},
    "train net": {
        "--address": "--runner ray:HOST:PORT", "--budget": "--cap calls=N", "--from": "train log --store",
        "--list": "train presets", "--lm": "train lm --model", "--log": "--tracker", "--out": "--output",
        "--push": "--to", "--resume": "train resume", "--staleness": "--set staleness=N",
        "--updates": "--cap updates=N", "--where": "train log QUERY",
    },
    "train prompts": {
        "--batch": "--set batch=N", "--iterations": "--set iterations=N", "--reviewer": "--set reviewer=MODEL",
        "--width": "--set width=N",
    },
    "train stop": {"--from": "--store", "--out": "--output", "--where": "train stop QUERY"},
}  # fmt: skip
"""New command to its old flags, each with the new one."""


def new_command(words: Sequence[str]) -> InputError | None:
    """The error that names the new command for these words of the command line; None where they are no old command."""
    for count in (2, 1):
        old = " ".join(words[:count])
        if old in COMMANDS:
            return InputError(f"{old!r} is now {COMMANDS[old]!r}", fix=f"counterpoint {COMMANDS[old]}")
    return None


def new_flag(command: str, flag: str) -> InputError | None:
    """The error that names the new flag of a command; None where it is no old flag."""
    new = FLAGS.get(command, {}).get(flag)
    return None if new is None else InputError(f"{flag!r} of {command} is now {new!r}", fix=f"counterpoint {command} --help")
