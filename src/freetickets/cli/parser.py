"""The parser: commands, and flags made of the data classes that hold their defaults."""

from __future__ import annotations

import argparse
import difflib
import inspect
import itertools
import re
import typing
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NoReturn

from .. import __version__
from ..config import Config, read_config
from ..errors import UnknownNameError
from ..methods import METHODS, get_method
from . import bench, compare, corrupt, evaluate, lists, plan, predict, report, reproduce, train

_SHORT = {"batch_size": "-b", "workers": "-j", "output": "-o"}
_SWITCHES = ("--json", "--quiet", "--amp", "--sync-batchnorm", "--nesterov", "--no-nesterov")
_NOT_FLAGS = ("method", "options", "model_options", "task_options")


class _Parser(argparse.ArgumentParser):
    """Answers a mistake in one line, with the nearest flag."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        found = re.search(r"unrecognized arguments: (--?[\w-]+)", message)
        if found:
            # argparse leaves a command's unknown flags to the parser above it, so ask them all.
            near = difflib.get_close_matches(found[1], _known_flags(self), n=1)
            hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
            message = f"unknown flag {found[1]}: {hint}"
        self.exit(2, f"freetickets: {message}\n")


class _Factors(argparse.Action):
    """Reads "name=factor" one or several times."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        try:
            pairs = [text.rpartition("=") for text in values]
            factors = {name: float(factor) for name, _, factor in pairs}
        except ValueError:
            factors = {"": 0.0}
        if "" in factors:
            parser.error(f"{flag} takes names and factors, such as norm-bias=64")
        setattr(namespace, self.dest, factors)


def _known_flags(parser: argparse.ArgumentParser) -> list[str]:
    flags = list(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                flags += _known_flags(command)
    return flags


def make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Builds the parser; the method named in the arguments decides which options there are."""
    parser = _Parser(
        prog="freetickets",
        description="Train one sparse network, get an ensemble.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    method = _method_in(arguments)
    for module in (train, plan):
        command = _add(commands, module)
        command.add_argument("method", nargs="?", help=f"one of: {', '.join(METHODS)}")
        command.add_argument("--config", metavar="FILE", help="read settings from YAML; flags win")
        _add_run_flags(command, method)
        module.add_flags(command)
    for module in (evaluate, predict, compare, report, corrupt, reproduce, bench):
        module.add_flags(_add(commands, module))
    for name, run, text in lists.COMMANDS:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        _add_json(command)
        if run is lists.methods:
            lists.add_method_flags(command)
    return parser


def _add(commands: Any, module: Any) -> argparse.ArgumentParser:
    name = module.__name__.rpartition(".")[2]
    text = inspect.getdoc(module) or ""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text.partition("\n")[0],
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=module.run)
    _add_json(command)
    return command


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print JSON, with keys that stay the same"
    )


def _method_in(arguments: Sequence[str]) -> str:
    """The method that a command line means, as far as can be told before it is parsed."""
    for before, argument in itertools.pairwise(arguments):
        # The word after a flag is the flag's value, but for the flags that have none.
        has_value = before.startswith("-") and before not in _SWITCHES
        if argument in METHODS and not has_value:
            return argument
    early = _Parser(add_help=False)
    early.add_argument("--config")
    config = early.parse_known_args(arguments)[0].config
    return str(read_config(config).get("method", Config.method)) if config else Config.method


def _add_run_flags(command: argparse.ArgumentParser, method: str) -> None:
    group = command.add_argument_group("settings (defaults come from the data set's recipe)")
    _add_fields(group, Config, skip=_NOT_FLAGS)
    known = {each.name for each in fields(get_method(method))} if method in METHODS else set()
    if "dropout" not in known:
        group.add_argument(
            "--dropout", type=float, metavar="FLOAT", help="Dropout rate, for models that have it."
        )
    if method in METHODS:
        options = command.add_argument_group(f"options of {method}")
        _add_fields(options, get_method(method), skip=())


def _add_fields(group: Any, kind: type, skip: Sequence[str]) -> None:
    """Adds one flag for each field; its help is the field's line in the class's docstring."""
    hints = typing.get_type_hints(kind)
    texts = attribute_texts(kind)
    for each in fields(kind):
        if each.name in skip:
            continue
        flags = [_SHORT[each.name]] if each.name in _SHORT else []
        flags.append("--" + each.name.replace("_", "-"))
        text = texts.get(each.name, "").replace("%", "%%")
        plain = [t for t in typing.get_args(hints[each.name]) if t is not type(None)]
        wanted = plain[0] if plain else hints[each.name]
        options: dict[str, Any] = {"dest": each.name, "help": text}
        if wanted is bool and plain:  # None is neither
            options.update(action=argparse.BooleanOptionalAction)
        elif wanted is bool:
            options.update(action="store_true", default=None)
        elif typing.get_origin(hints[each.name]) is tuple:
            options.update(nargs="*", metavar="PATTERN")
        elif typing.get_origin(wanted) is dict:
            options.update(nargs="*", metavar="NAME=FACTOR", action=_Factors)
        else:
            options.update(type=wanted, metavar=wanted.__name__.upper())
        if each.default not in (None, (), False) and isinstance(each.default, (int, float, str)):
            options["help"] += f" (default: {each.default})"
        group.add_argument(*flags, **options)


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


def config_from(parsed: argparse.Namespace) -> Config:
    """Brings a config file and flags together; flags win."""
    values: dict[str, Any] = read_config(parsed.config) if parsed.config else {}
    if parsed.method is not None:
        if parsed.method not in METHODS:
            raise UnknownNameError("method", parsed.method, METHODS)
        if parsed.method != values.get("method", parsed.method):
            values["options"] = {}
        values["method"] = parsed.method
    method = get_method(values.get("method", Config.method))
    given = {name: value for name, value in vars(parsed).items() if value is not None}
    values.update({f.name: given[f.name] for f in fields(Config) if f.name in given})
    options = {f.name: given[f.name] for f in fields(method) if f.name in given}
    values["options"] = {**values.get("options", {}), **options}
    if "dropout" in given and "dropout" not in options:
        values["model_options"] = {
            **values.get("model_options", {}),
            "dropout": given["dropout"],
        }
    return Config(**values)
