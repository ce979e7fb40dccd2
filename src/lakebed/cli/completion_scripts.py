"""The completion scripts of bash, zsh and fish, and the answers to them.

A script runs ``lakebed`` with ``_LAKEBED_COMPLETE`` set to its shell, and the text of the command before the
cursor in ``COMP_LINE``. The answer is a line for each word that may stand there: ``plain``, the whole word and its
help, with tabs between. ``file`` and ``dir`` stand for local paths, with what the word has before the path, such as
``--config=``.

Not Click's own scripts: they do not complete ``--option=value`` (bash), or replace all of it by the value (zsh, fish).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

if TYPE_CHECKING:
    from click import Command

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
