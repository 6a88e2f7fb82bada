"""The command line, as packaging/edgerun_packaging/launcher/options.c reads it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgerun.errors import UsageError

VERBS = ("info", "run", "bench", "selftest", "serve")

_GENERAL = """A packed model: one file that runs itself.

  $ {0} run --input random

  info       what is inside: model, target, inputs, outputs, memory
  run        run once on given inputs
  bench      latency percentiles and memory
  selftest   check weights and golden vectors
  serve      answer HTTP requests

`{0} COMMAND --help` tells more.
"""
_PAGES = {
    "info": """Show what is inside: model, target, inputs, outputs, memory.

  $ {0} info
  $ {0} info --json
""",
    "run": """Run the model once, or for every record on standard input.

  $ {0} run --input x=photo.npy --output-dir results
  $ {0} run --input random --json
  $ cat *.npy | {0} run --stream --input - --output - > results.npys

  --input [NAME=]SOURCE   file.npy, file.npz, file.raw (plain bytes), file.txt (strings, one a line), random, zeros,
                          or standard input: - (npy), raw:- (plain bytes); without NAME: the only input, or every
                          member of an .npz
  --shape NAME=1,3,8,8    shape of an input whose dimensions are free (random, zeros, raw)
  --stream                go on until standard input ends, which holds one record after another;
                          without --output one JSON document a line
  --output DEST           FILE.npz, or standard output: - (npy, one array after another), raw:- (plain bytes)
  --output-dir DIR        write each output to DIR/NAME.npy
  --force                 replace files that exist
  --seed N                for random inputs (default 0)
""",
    "bench": """Measure latency and memory; load, first run and steady runs apart.

  $ {0} bench
  $ {0} bench --threads sweep --layers

  --threads N|sweep|1,2   thread counts to measure (default: all cores)
  --runs N                timed runs (default: as many as fit into --seconds)
  --seconds S             time of the steady phase (default 2)
  --warmup N              untimed runs before it (default 3)
  --layers                time of every layer
  --allow-throttled       accept runs during which the CPU was throttled
  --input, --shape        as for run (default random)

Exit status 1 when the median is over the latency budget given at pack time, or the CPU was throttled.
""",
    "selftest": """Check the weights and replay the stored golden vectors; exit 1 when an output is wrong.

  $ {0} selftest
""",
    "serve": """Answer HTTP requests: GET /healthz, GET /metadata, POST /infer (JSON or npy).

  $ {0} serve
  $ curl -H 'Content-Type: application/x-npy' --data-binary @x.npy http://127.0.0.1:8080/infer

  --listen [HOST:]PORT    address (default 127.0.0.1:8080; 0.0.0.0:8080 for everybody; port 0: any free one)
  --max-body BYTES        largest request (default 64 MiB)
  --timeout S             time a client has for its request (default 10)

SIGTERM ends it. There is no encryption and no password: put a proxy in front.
""",
}
_COMMON = """
For all commands: --format table|json (--json), --threads N, --isa LEVEL, --no-memory-check, --help, --version
For models on a GPU: --allow-software-adapter (a program on the CPU that behaves like a GPU)
Exit status: 0 ok, 1 negative result, 2 usage, 3 hardware absent, 5 file error, 70 internal error
"""


@dataclass(slots=True)
class Options:
    """What the words say."""

    verb: str = ""
    help: bool = False
    json: bool = False
    layers: bool = False
    stream: bool = False
    allow_throttled: bool = False
    no_memory_check: bool = False
    allow_software_adapter: bool = False
    force: bool = False
    inputs: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    output_dir: str | None = None
    output: str | None = None
    listen: str | None = None
    max_body: int | None = None
    timeout: float = 10.0
    threads: str | None = None
    isa: str | None = None
    seed: int = 0
    runs: int | None = None
    warmup: int = 3
    seconds: float = 2.0


_SWITCHES = {
    "--help": "help", "-h": "help", "--json": "json", "--layers": "layers", "--force": "force", "--stream": "stream",
    "--allow-throttled": "allow_throttled", "--no-memory-check": "no_memory_check",
    "--allow-software-adapter": "allow_software_adapter",
}  # fmt: skip
_LISTS = {"--input": "inputs", "--shape": "shapes"}
_TEXTS = {
    "--output-dir": "output_dir", "--output": "output", "--threads": "threads", "--isa": "isa", "--listen": "listen",
}  # fmt: skip
_COUNTS = {
    "--seed": ("seed", 0, 10**9), "--runs": ("runs", 1, 10**6), "--warmup": ("warmup", 0, 10**6),
    "--max-body": ("max_body", 1024, 1 << 30),
}  # fmt: skip
_TIMES = {"--seconds": ("seconds", 86400), "--timeout": ("timeout", 3600)}


def parse(words: Sequence[str]) -> Options:
    """Options from the words after the program's name. Raises UsageError."""
    options = Options()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            if options.verb:
                raise UsageError(f"'{word}' is one word too many; see --help")
            options.verb = _verb(word)
            continue
        if word in _SWITCHES:
            setattr(options, _SWITCHES[word], True)
            continue
        flag, equals, value = word.partition("=")
        if flag not in (*_LISTS, *_TEXTS, *_COUNTS, *_TIMES, "--format"):
            raise UsageError(f"there is no option '{word}'; see --help")
        if not equals:
            if not rest:
                raise UsageError(f"{flag} needs a value")
            value = rest.pop(0)
        _set(options, flag, value)
    return options


def _verb(word: str) -> str:
    if word in VERBS:
        return word
    near = difflib.get_close_matches(word, VERBS, n=1, cutoff=0.5)
    if near:
        raise UsageError(f"there is no command '{word}'; did you mean '{near[0]}'?")
    raise UsageError(f"there is no command '{word}'; the commands are {', '.join(VERBS)} (see --help)")


def _set(options: Options, flag: str, value: str) -> None:
    if flag in _LISTS:
        getattr(options, _LISTS[flag]).append(value)
    elif flag in _TEXTS:
        setattr(options, _TEXTS[flag], value)
    elif flag in _COUNTS:
        name, low, high = _COUNTS[flag]
        setattr(options, name, count(value, flag, low, high))
    elif flag == "--format":
        if value not in ("table", "json"):
            raise UsageError(f"--format takes table or json here, not '{value}'")
        options.json = value == "json"
    else:
        name, most = _TIMES[flag]
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= most:
            raise UsageError(f"{flag} takes a number above 0 and up to {most}, not '{value}'")
        setattr(options, name, seconds)


def count(text: str, what: str, low: int, high: int) -> int:
    """A whole number in a range. Raises UsageError."""
    if not text.isdecimal() or not low <= int(text) <= high:
        raise UsageError(f"{what} takes a whole number from {low} to {high}, not '{text}'")
    return int(text)


def help_text(verb: str, program: str) -> str:
    """The page of a verb, or the general one."""
    return (_PAGES[verb] if verb else _GENERAL).format(program) + _COMMON
