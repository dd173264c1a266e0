"""The parser: commands, and flags made of the data classes that hold their defaults."""

import argparse
import contextlib
import difflib
import inspect
import io
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..bench import NAMES, ON_REQUEST
from ..config import Config, read_config
from ..data import get_spec
from ..data.corruptions import CORRUPTIONS
from ..data.spec import DATASETS, DatasetSpec
from ..experiments.grid import grid_names
from ..experiments.scales import SCALES
from ..methods import METHODS, get_method
from ..models import check_name
from ..reading import parse_yaml
from ..registry import Registry, import_module, is_reference
from ..sparsity.named import SCORES, SPARSE_METHODS
from . import bench, compare, corrupt, evaluate, lists, plan, predict, report, reproduce, train

_WORDS = {  # what `flags.yaml` leaves open
    "default": "(default: %(default)s)",
    "benchmarks": " ".join(NAMES),
    "measurements": "; ".join(f"{what}: {', '.join(names)}" for what, names in NAMES.items())
    + f"; {' and '.join(ON_REQUEST)} run only if named",
    "corruptions": ", ".join(CORRUPTIONS),
    "scales": "; ".join(f"{scale.name}: {scale.summary}" for scale in SCALES.values())
    + f"; {', '.join(grid_names())}: experiments of their own, see --list",
}
_SHORT = {"batch_size": ["-b"], "workers": ["-j"], "output": ["-o"]}
_NOT_FLAGS = ("method", "options", "model_options", "task_options")


class _Parser(argparse.ArgumentParser):
    """Answers a mistake in one line, with the nearest flag."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"unrecognized arguments: (--?[\w-]+)", message):
            # argparse leaves a command's unknown flags to the parser above it, so ask them all.
            known = set(self._option_string_actions)
            for action in self._actions:
                if isinstance(action, argparse._SubParsersAction):
                    known.update(*(each._option_string_actions for each in action.choices.values()))
            # Another command may have the very flag.
            near = difflib.get_close_matches(found[1], known - {found[1]}, n=1)
            hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
            message = f"unknown flag {found[1]}: {hint}"
        self.exit(2, f"freetickets: {message}\n")


def count(text: str) -> int:
    """Reads how many: 1 or more."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"give 1 or more, not {number}")
    return number


def _factor(text: str) -> tuple[str, float]:
    """Reads "name=factor"."""
    name, _, factor = text.rpartition("=")
    if name:
        with contextlib.suppress(ValueError):
            return name, float(factor)
    raise argparse.ArgumentTypeError("give names and factors, such as norm-bias=64")


def make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Builds the parser; the method named in the arguments decides which options there are."""
    for module in _early("--import", arguments, action="append") or ():
        import_module("--import", module)
    parser = _Parser(prog="freetickets", description="Train one sparse network, get an ensemble.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    method = _method_in(arguments)
    modules = (train, plan, evaluate, predict, compare, report, corrupt, reproduce, bench)
    runs: dict[Any, Any] = {module: module.run for module in modules}
    runs |= {run: run for run in (lists.methods, lists.datasets, lists.models)}
    for told, run in runs.items():
        name, text = told.__name__.rpartition(".")[2], inspect.getdoc(told) or ""
        form = argparse.RawDescriptionHelpFormatter
        first = text.partition("\n")[0]
        command = commands.add_parser(name, help=first, description=text, formatter_class=form)
        command.set_defaults(run=run)
        _add_flags(command, _flags()["every command"])
        if told in (train, plan):
            _add_training(command, method)
        _add_flags(command, _flags()[name])
    return parser


_TYPES = {"count": count, "int": int, "float": float}


@cache
def _flags() -> dict[str, Any]:
    text = Path(__file__).with_name("flags.yaml").read_text(encoding="utf-8")
    return parse_yaml(text, "flags.yaml", aliases=True)


def _add_flags(group: Any, flags: Mapping[str, Any]) -> None:
    """Adds flags as `flags.yaml` has them, also those of groups."""
    for names, told in flags.items():
        if names == "groups":
            for title, inner in told.items():
                _add_flags(group.add_argument_group(title), inner)
            continue
        # What has no help is for processes of our own.
        text = told["help"].format_map(_WORDS) if "help" in told else argparse.SUPPRESS
        options = {**told, "help": text}
        if "type" in options:
            options["type"] = _TYPES[options["type"]]
        if "choices" in options:
            options["choices"] = options["choices"].format_map(_WORDS).split()
        group.add_argument(*names.split(), **options)


def _early(flag: str, arguments: Sequence[str], **options: Any) -> Any:
    """What a flag says, before the whole command line can be understood."""
    early = _Parser(add_help=False)
    early.add_argument(flag, dest="value", **options)
    return early.parse_known_args(arguments)[0].value


def _method_in(arguments: Sequence[str]) -> str | None:
    """The method that a command line means; None if it can't be told, or is unknown.

    A word is the method if the parser with the options of that method says so: nobody else knows
    which flags take a value.
    """
    if not arguments or arguments[0] not in ("train", "plan"):
        return None
    for word in arguments[1:]:
        if word in METHODS or is_reference(word):
            parser = _Parser(add_help=False)
            _add_flags(parser, _flags()["every command"])
            _add_training(parser, word, complete=False)
            _add_flags(parser, _flags()[arguments[0]])
            understood = None
            with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                understood = parser.parse_known_args(arguments[1:])[0].method
            if understood == word:
                METHODS.load(word)
                return word
    config = _early("--config", arguments)
    if not config:
        return Config.method
    named = str(read_config(config).get("method", Config.method))
    METHODS.load(named)
    return named


def _add_training(
    command: argparse.ArgumentParser, method: str | None, complete: bool = True
) -> None:
    """Adds the flags of a training; unless `complete`, not those of a user's own method."""
    text = f"one of: {', '.join(METHODS)}; or your own, as MODULE:CLASS"
    command.add_argument("method", nargs="?", help=text)
    command.add_argument("--config", metavar="FILE", help="read YAML settings; flags override them")
    group = command.add_argument_group("settings (defaults come from the data set's recipe)")
    _add_fields(group, Config, skip=_NOT_FLAGS)
    known = method is not None and (complete or method in METHODS)
    kind = get_method(str(method)) if known else None
    if kind is None or "dropout" not in {each.name for each in fields(kind)}:
        text = "Dropout rate, for models that have it."
        group.add_argument("--dropout", type=float, metavar="FLOAT", help=text)
    if kind is not None:
        _add_fields(command.add_argument_group(f"options of {method}"), kind, skip=())


def _add_fields(group: Any, kind: type, skip: Sequence[str]) -> None:
    """Adds one flag for each field; its help is the field's line in the class's docstring."""
    hints = typing.get_type_hints(kind)
    texts = attribute_texts(kind)
    for each in fields(kind):
        if each.name in skip:
            continue
        hint = hints[each.name]
        plain = typing.get_args(hint)  # of a type "or None", which comes last
        wanted = plain[0] if plain else hint
        text = texts.get(each.name, "").replace("%", "%%")
        if each.default not in (None, (), False) and isinstance(each.default, (int, float, str)):
            text += f" (default: {each.default})"
        options: dict[str, Any] = {"dest": each.name, "help": text}
        if wanted is bool and plain:  # None is neither
            options.update(action=argparse.BooleanOptionalAction)
        elif wanted is bool:
            options.update(action="store_true", default=None)
        elif typing.get_origin(hint) is tuple:
            options.update(nargs="*", metavar="PATTERN")
        elif typing.get_origin(wanted) is dict:
            options.update(nargs="*", metavar="NAME=FACTOR", type=_factor)
        else:
            options.update(type=wanted, metavar=wanted.__name__.upper())
        flag = "--" + each.name.replace("_", "-")
        group.add_argument(*_SHORT.get(each.name, ()), flag, **options)


def attribute_texts(kind: type) -> dict[str, str]:
    """Reads what a class and its bases say of their attributes in their docstrings.

    Example:
        >>> from freetickets.methods import EDST
        >>> attribute_texts(EDST)["tickets"]
        'Number of tickets to collect (M).'
    """
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            texts[name] = " ".join(text.split())
    return texts


def training_from(parsed: argparse.Namespace) -> tuple[Config, DatasetSpec]:
    """What a command line asks to train, with every default filled in, and on which data."""
    values: dict[str, Any] = read_config(parsed.config) if parsed.config else {}
    if parsed.method is not None:
        METHODS.load(parsed.method)
        if parsed.method != values.get("method", parsed.method):
            values["options"] = {}
        values["method"] = parsed.method
    method = get_method(values.get("method", Config.method))
    given = {name: value for name, value in vars(parsed).items() if value is not None}
    if "lr_factors" in given:
        given["lr_factors"] = dict(given["lr_factors"])
    values.update({f.name: given[f.name] for f in fields(Config) if f.name in given})
    options = {f.name: given[f.name] for f in fields(method) if f.name in given}
    values["options"] = {**values.get("options", {}), **options}
    if "dropout" in given and "dropout" not in options:
        values["model_options"] = {**values.get("model_options", {}), "dropout": given["dropout"]}
    config = Config(**values)
    # What settings of the user's own name as "module:name" is imported.
    named: list[tuple[Registry[Any], Any]] = [
        (DATASETS, config.dataset),
        (SPARSE_METHODS, config.options.get("explorer")),
        *((SCORES, config.options.get(option)) for option in ("prune", "grow")),
    ]
    if is_reference(config.optimizer):
        from ..training.optimizer import OPTIMIZERS

        named.append((OPTIMIZERS, config.optimizer))
    for registry, name in named:
        if is_reference(str(name)):
            registry.load(str(name))
    check_name(config.model)
    spec = get_spec(config.dataset, config.data_dir, config.image_size, config.make_task())
    return config.resolved(spec), spec
