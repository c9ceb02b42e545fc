"""``visiontrain completion bash|zsh``: a script that completes words in a shell, made of the settings; completing starts no Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from visiontrain.config.help import COMPLETION, VERBS
from visiontrain.config.sizes import CHECKPOINTS, EXPORTED, FOREIGN, model_names
from visiontrain.config.values import Leaf, leaves_of
from visiontrain.errors import ConfigError
from visiontrain.paths import datasets_dir

YAML = (".yaml", ".yml")
ANY = ("",)  # an ending that every file has
# How files end that a setting takes; folders are offered beside them.
FILES: dict[str, tuple[str, ...]] = {
    "model": (*CHECKPOINTS, *FOREIGN, ".onnx", ".torchscript"),
    "data": YAML,
    "cfg": YAML,
    "albumentations": YAML,
    "resume": (".pt",),
    "weights": (*CHECKPOINTS, *FOREIGN),
    "predictions": (".json",),
    **dict.fromkeys(("source", "out", "project", "a", "b"), ANY),
}
LIKE = ("yes", "on", "1", "no", "off", "0")  # said as true and false already


def script(shell: str) -> str:
    """The script, with how to load it in its first lines.

    Raises:
        ConfigError: there is none for that shell.
    """
    if shell not in SCRIPTS:
        known = " or ".join(f"visiontrain completion {name}" for name in SCRIPTS)
        raise ConfigError(
            f"there is no completion for {shell!r}; write {known}" if shell else f"which shell? Write {known}"
        )
    text = SCRIPTS[shell]
    parts = {"HOW": "\n".join(f"# {line}" for line in COMPLETION[shell]), "CASES": "\n".join(_cases())}
    parts |= {"VERBS": " ".join(VERBS), "ALL": " ".join(dict.fromkeys(n for names in _names().values() for n in names))}
    parts |= {"SHELLS": " ".join(SCRIPTS), "ABOUT": "\n".join(_about())}
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def offered(leaf: Leaf, verb: str) -> list[str]:
    """The words that a setting takes, as far as they can be listed; of several with one meaning, the first."""
    found: dict[object, str] = {choice: choice for choice in leaf.meta["choices"] if choice}
    if leaf.kind is bool:
        found |= {True: "true", False: "false"}
    for word, meaning in leaf.meta["words"].items():
        if word not in LIKE:
            found.setdefault(meaning, word)
    if leaf.kind is not bool and (leaf.name != "model" or verb in ("train", "plan", "check")):
        found |= {word: word for word in _known().get(leaf.name, ())}
    return list(found.values())


@cache
def _known() -> dict[str, Sequence[str]]:
    """Words of settings that are texts to the schema."""
    return {
        "model": model_names(),
        "data": sorted(file.stem for file in datasets_dir().glob("*.yaml")),
        "device": ("auto", "cpu", "cuda", "0"),
        "export": tuple(EXPORTED),
        "albumentations": ("default", "none"),
        "class_weights": ("none", "images", "boxes"),
    }


def _names() -> dict[str, tuple[str, ...]]:
    return {verb: (*leaves_of(settings), "cfg") for verb, (settings, _, _) in VERBS.items() if settings}


def _cases() -> Iterator[str]:
    """Three functions that both shells understand: names of a verb, words and endings of files of ``verb.name``."""
    yield from _function("names", {verb: " ".join(names) for verb, names in _names().items()})
    words = {
        f"{verb}.{name}": " ".join(offered(leaf, verb))
        for verb, (settings, _, _) in VERBS.items()
        for name, leaf in (leaves_of(settings) if settings else {}).items()
    }
    yield from _function("words", words)
    endings = {f"*.{name}": " ".join(f"*{ending}" for ending in found) for name, found in FILES.items()}
    yield from _function("files", endings)


def _function(name: str, answers: Mapping[str, str]) -> Iterator[str]:
    """A function that answers to its argument; arguments with one answer share a line."""
    asked: dict[str, list[str]] = {}
    for argument, answer in answers.items():
        asked.setdefault(answer, []).append(argument)
    yield f"_visiontrain_{name}() {{\n    case $1 in"
    yield from (f"        {'|'.join(arguments)}) echo '{answer}' ;;" for answer, arguments in asked.items() if answer)
    yield "    esac\n}"


def _about() -> Iterator[str]:
    """For zsh: verbs, and settings by verb, each with what it means."""
    yield f"_visiontrain_verbs=({_described({verb: what for verb, (_, what, _) in VERBS.items()})})"
    for verb, (settings, _, _) in VERBS.items():
        if settings:
            about = {name: leaf.help for name, leaf in leaves_of(settings).items()} | {"cfg": "a file of settings"}
            yield f"_visiontrain_settings_{verb}=({_described(about)})"


def _described(texts: Mapping[str, str]) -> str:
    quoted = (f"{name}:{text}".replace("'", "'\\''") for name, text in texts.items())
    return "".join(f"\n    '{entry}'" for entry in quoted) + "\n"


BASH = r"""# Completion of visiontrain in bash, printed by visiontrain completion bash.
@HOW@

@CASES@

_visiontrain_paths() { # the beginning of a path, then patterns of names: folders, and files that match
    local pattern
    compgen -d -- "$1"
    set -f
    for pattern in $2; do compgen -f -X "!$pattern" -- "$1"; done
    set +f
}

_visiontrain_runs() { # the beginning of a path: folders of runs
    {
        compgen -G "$1*/run.json"
        compgen -G "$1*/*/run.json"
        [[ runs/ == "$1"* ]] && compgen -G 'runs/*/*/run.json'
    } | sed 's:/run\.json$::' | sort -u
}

_visiontrain_weights() { # the beginning of a path, then a name: checkpoints of the runs, where they usually are
    [[ runs/ == "$1"* ]] && compgen -G "runs/*/*/weights/$2"
}

_visiontrain() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    local name= head= files= given=" " at
    local -a found=()
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W '@VERBS@' -- "$current"))
        return
    fi
    case $verb.$COMP_CWORD in
        completion.2) COMPREPLY=($(compgen -W '@SHELLS@' -- "$current")); return ;;
        help.2) COMPREPLY=($(compgen -W '@VERBS@ @ALL@' -- "$current")); return ;;
        help.*) COMPREPLY=($(compgen -W "$(_visiontrain_names "${COMP_WORDS[2]}")" -- "$current")); return ;;
    esac
    # By default = divides words, and name=value comes as three of them.
    if [[ $current == "=" ]]; then
        name=$before current=
    elif [[ $before == "=" ]]; then
        name=${COMP_WORDS[COMP_CWORD-2]}
    elif [[ $current == *=* ]]; then
        name=${current%%=*} current=${current#*=} head=$name=
    fi
    current=${current#[\"\']} current=${current//\\/}
    if [[ -z $name ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            [[ ${COMP_WORDS[at]} == "=" ]] && given+="${COMP_WORDS[at-1]} "
            [[ ${COMP_WORDS[at]} == ?*=* ]] && given+="${COMP_WORDS[at]%%=*} "
        done
        for at in $(compgen -W "$(_visiontrain_names "$verb")" -- "$current"); do
            [[ $given == *" $at "* ]] || COMPREPLY+=("$at=")
        done
        [[ $COMPREPLY ]] && compopt -o nospace
        [[ $verb == compare ]] || return
        mapfile -t found < <(_visiontrain_runs "$current")
    else
        COMPREPLY=($(compgen -W "$(_visiontrain_words "$verb.$name")" -- "$current"))
        files=$(_visiontrain_files "$verb.$name")
        case $name in
            model) mapfile -t found < <(_visiontrain_weights "$current" '*.pt') ;;
            resume) mapfile -t found < <(_visiontrain_weights "$current" last.pt) ;;
        esac
    fi
    # Whole paths are shown as they are; where there are none, names of files as the shell does for other commands.
    ((${#found[@]})) && mapfile -t found < <(printf '%q\n' "${found[@]}")
    COMPREPLY+=("${found[@]}")
    if [[ $files || ($verb == compare && -z $name && -z $found) ]]; then
        [[ $found ]] || compopt -o filenames
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(_visiontrain_paths "$current" "$files" | sort -u)
    fi
    COMPREPLY=("${COMPREPLY[@]/#/$head}")
}

complete -F _visiontrain visiontrain
"""
ZSH = r"""#compdef visiontrain
# Completion of visiontrain in zsh, printed by visiontrain completion zsh.
@HOW@

@CASES@

@ABOUT@
_visiontrain() {
    local verb=$words[2] name files
    local -a names runs
    if ((CURRENT == 2)); then
        _describe -t verbs verb _visiontrain_verbs
    elif [[ $verb == completion ]]; then
        compadd -- @SHELLS@
    elif [[ $verb == help ]]; then
        if ((CURRENT == 3)); then
            _describe -t verbs verb _visiontrain_verbs
            compadd -- @ALL@
        else
            compadd -- ${=$(_visiontrain_names $words[3])}
        fi
    elif [[ $PREFIX != *=* ]]; then
        names=(${(P)${:-_visiontrain_settings_$verb}})
        for name in $words[3,CURRENT-1]; do names=(${names:#${name%%=*}:*}); done
        _describe -t settings setting names -S = -q
        if [[ $verb == compare ]]; then
            runs=($PREFIX*/run.json(N:h) $PREFIX*/*/run.json(N:h))
            [[ runs/ == $PREFIX* ]] && runs+=(runs/*/*/run.json(N:h))
            compadd -a runs || _files -/
        fi
    else
        name=${PREFIX%%=*}
        compset -P 1 '*='
        compadd -- ${=$(_visiontrain_words $verb.$name)}
        if [[ runs/ == $PREFIX* ]]; then
            case $name in
                model) compadd -- runs/*/*/weights/*.pt(N) ;;
                resume) compadd -- runs/*/*/weights/last.pt(N) ;;
            esac
        fi
        files=$(_visiontrain_files $verb.$name)
        if [[ -n $files ]]; then _files -g "(${files// /|})"; fi
    fi
}

if ((! $+functions[compdef])); then autoload -Uz compinit && compinit -i -D; fi
if [[ $funcstack[1] == _visiontrain ]]; then _visiontrain "$@"; else compdef _visiontrain visiontrain; fi
"""
SCRIPTS: dict[str, str] = {"bash": BASH, "zsh": ZSH}
