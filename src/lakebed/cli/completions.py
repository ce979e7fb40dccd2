"""Completion in bash, zsh and fish: the scripts, their answers, and the names that an instance has.

A script runs ``lakebed`` with ``_LAKEBED_COMPLETE`` set to its shell, and the text of the command before the cursor in
``COMP_LINE``. The answer is a line for each word that may stand there: ``plain``, the whole word and its help, with
tabs between. ``file`` and ``dir`` stand for local paths, with what the word has before the path, such as ``--config=``.
Not Click's own scripts: they do not complete ``--option=value`` (bash), or replace all of it by the value (zsh, fish).

Names of tables, columns, tags, settings, hooks and roles are those of the instance that the line, the environment or
the configuration names. A remote store is read for at most a third of a second; after an error or a time-out there are
no completions. A log whose URL the user has not agreed to is not contacted: opening such an instance is refused.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

if TYPE_CHECKING:
    from click import Command

    import lakebed


REMOTE_READ_S = 0.3
LOCAL_READ_S = 5.0
"""A local disk answers at once; what takes long is this process on a busy machine."""

Names = Callable[["lakebed.Instance", click.Context], Iterable[str]]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def _of_instance(names: Names) -> Completion:
    """Return names that the instance has."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        return _starting(incomplete, _names_in_time(ctx, names))

    return complete


tables = _of_instance(lambda lake, _: lake.tables())
tags = _of_instance(lambda lake, ctx: lake.table(_table_name(ctx)).tags())
"""Those of the table that the line names."""


@_of_instance
def hooks(lake: lakebed.Instance, _: click.Context) -> Iterable[str]:
    """Return the ids of hooks."""
    from lakebed.read.inspect.hooks import read_hooks

    return [hook.id for hook in read_hooks(lake.storage, {})]


@_of_instance
def roles(lake: lakebed.Instance, _: click.Context) -> Iterable[str]:
    """Return the roles that were created."""
    from lakebed.server.security import stored

    return stored.roles_of(lake.storage)


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Local files and folders, which the shell lists."""
    from click.shell_completion import CompletionItem

    del ctx, param
    return [CompletionItem(incomplete, type="file")]


def columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the columns of the table that the line names, after those that stand before a comma already."""
    del param
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _starting(last, _names_in_time(ctx, _column_names))]


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return settings with an equals sign; tables as well, where the first word may be one."""
    from lakebed.model.settings import NAMES

    found = [f"{name}=" for name in NAMES if name.startswith(incomplete)]
    first = param.name == "words" and not ctx.params.get("words")
    return [*tables(ctx, param, incomplete), *found] if first else found


def instances(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Return the instances of the configuration by their names, and folders."""
    from click.shell_completion import CompletionItem

    del param
    named = _configured(ctx, "instances", incomplete)
    return [*map(CompletionItem, named)] or [CompletionItem(incomplete, type="dir")]


def profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles of the configuration."""
    del param
    return _configured(ctx, "profiles", incomplete)


def _configured(ctx: click.Context, what: str, incomplete: str) -> list[str]:
    try:
        return _starting(incomplete, getattr(ctx.obj.configuration, what))
    except Exception:  # noqa: BLE001 - a shell that completes has nowhere to show it
        return []


def _column_names(lake: lakebed.Instance, ctx: click.Context) -> Iterable[str]:
    return lake.table(_table_name(ctx)).schema.names


def _table_name(ctx: click.Context) -> str:
    """Return the table that the line names; Click leaves words unparsed before an option without its value."""
    return ctx.params.get("table") or ctx.args[0]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _names_in_time(ctx: click.Context, names: Names) -> list[str]:
    """Return the names, if the instance gives them in time."""
    found: list[str] = []
    is_remote = "://" in (ctx.obj.url_if_given() or "")
    # Imported before the clock is started, because the time of imports depends on the machine.
    import_module("lakebed.table.opening")
    if is_remote:
        import_module("lakebed.storage.object_store")

    def read() -> None:
        try:
            found.extend(names(ctx.obj.instance_to_read(), ctx))
        except Exception:  # noqa: BLE001 - a shell that completes has nowhere to show it
            found.clear()

    # A daemon thread: an unresponsive store does not keep the process alive.
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(REMOTE_READ_S if is_remote else LOCAL_READ_S)
    return [] if reader.is_alive() else found


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)

# readline replaces the part of the word after the last = or :, if these are in COMP_WORDBREAKS.
_BASH = r"""_lakebed_completion() {
    local line=${COMP_LINE:0:COMP_POINT} word type value rest char kept=
    word=${line##*[[:space:]]}
    for char in = :; do
        if [[ $COMP_WORDBREAKS == *$char* && $word == *$char* ]]; then
            rest=${word%"${word##*$char}"}
            (( ${#rest} > ${#kept} )) && kept=$rest
        fi
    done
    kept=${kept#[\'\"]}
    COMPREPLY=()
    while IFS=$'\t' read -r type value rest; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                value=${value#"$kept"}
                if [[ $word != [\'\"]* && $value == *[[:space:]\'\"\$\&\;\|\<\>\(\)\*\?\!\`\\]* ]]; then
                    printf -v value %q "$value"
                fi
                COMPREPLY+=("$value")
                [[ $value == *= ]] && compopt -o nospace
                ;;
        esac
    done < <(COMP_LINE=$line _LAKEBED_COMPLETE=bash "$1" 2>/dev/null)
    return 0
}

complete -o nosort -F _lakebed_completion lakebed
"""

_ZSH = r"""#compdef lakebed

_lakebed_completion() {
    local type value help
    local -a open open_help closed closed_help
    while IFS=$'\t' read -r type value help; do
        case $type in
            dir) compset -P '*='; _files -/; return ;;
            file) [[ -n $value ]] && compset -P '*='; _files; return ;;
            plain)
                [[ -n $help ]] && help="$value  -- $help" || help=$value
                if [[ $value == *= ]]; then
                    open+=("$value"); open_help+=("$help")
                else
                    closed+=("$value"); closed_help+=("$help")
                fi
                ;;
        esac
    done < <(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" _LAKEBED_COMPLETE=zsh $words[1] 2>/dev/null)
    (( $#open )) && compadd -U -V open -S '' -l -d open_help -a open
    (( $#closed )) && compadd -U -V closed -l -d closed_help -a closed
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _lakebed_completion "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
    compdef _lakebed_completion lakebed
fi
"""

_FISH = r"""function __lakebed_completion
    set -l line (commandline -cp | string collect)
    for answer in (COMP_LINE=$line _LAKEBED_COMPLETE=fish lakebed 2>/dev/null)
        set -l parts (string split -m 2 -- \t $answer)
        set -l path (string sub -s (math (string length -- "$parts[2]") + 1) -- (commandline -ct))
        switch $parts[1]
            case dir
                __fish_complete_directories "$path" | string replace -r -- '^' "$parts[2]"
            case file
                __fish_complete_path "$path" | string replace -r -- '^' "$parts[2]"
            case plain
                printf '%s\t%s\n' $parts[2] "$parts[3]"
        end
    end
end

complete --no-files --keep-order --command lakebed --arguments '(__lakebed_completion)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class _Answer(ShellComplete):
    """The answer, which is the same for all shells."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words after ``lakebed``, and the incomplete one."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        incomplete = "" if line[-1:].isspace() or len(words) < 2 else words.pop()
        self._kept = incomplete[: incomplete.find("=") + 1] if incomplete.startswith("--") else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return a line of the answer."""
        help = " ".join((item.help or "").split())
        return "\t".join((item.type, self._kept + (item.value if item.type == "plain" else ""), help))


def answer(command: Command, obj: object) -> str:
    """Return the answer to the script that runs this process; ``obj`` is the context's."""
    return _Answer(command, {"obj": obj}, "lakebed", "_LAKEBED_COMPLETE").complete()
