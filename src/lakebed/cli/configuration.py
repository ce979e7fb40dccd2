"""The configuration file of the command line: instances by a short name, and defaults. ``lakebed config``.

A TOML file: ``--config``, else ``LAKEBED_CONFIG``, else ``lakebed/config.toml`` below ``XDG_CONFIG_HOME`` (by default
``~/.config``). docs/configuration.md specifies it. An option on the command line wins over an environment variable, and
that over the file.

Secrets stay out of the file: a value may be ``{ env = "NAME" }`` or ``{ file = "PATH" }``, and a token must be.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakebed.cli.grammar import CONFIG_VARIABLE, Invocation, command
from lakebed.errors import Code, Error
from lakebed.model.suggestions import did_you_mean

_TOP = {"default", "instances"}
_OF_INSTANCE = {"url", "log_url", "commit_via", "token", "options"}
_SECRET_WORDS = ("secret", "token", "password", "key", "credential", "sas")


@dataclass(frozen=True, slots=True)
class NamedInstance:
    """An instance as the file describes it; values of the environment and of files are read when they are asked for."""

    name: str
    where: Path
    url: str
    log_url: str | None = None
    commit_via: str | None = None
    secret_token: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def storage_options(self) -> dict[str, str]:
        """The storage options. Raises UsageError for a variable or file that is not there."""
        return {key: self._read(f"options.{key}", value) for key, value in self.options.items()}

    def token(self) -> str | None:
        """The token for ``commit_via``. Raises as :meth:`storage_options`."""
        return None if self.secret_token is None else self._read("token", self.secret_token)

    def _read(self, key: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        ((source, name),) = value.items()
        if source == "env":
            found = os.environ.get(name)
            if not found:
                raise self._wrong(f"{key} is in the environment variable {name}, which is not set")
            return found
        try:
            return Path(name).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong(f"{key} is in the file {name}, which cannot be read: {error}") from error

    def _wrong(self, text: str) -> Error:
        return Code.ARGUMENT_INVALID(f"{self.where}: instances.{self.name}: {text}")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a file says; ``default`` is the name or URL of the instance where none is given."""

    path: Path
    default: str | None = None
    instances: Mapping[str, NamedInstance] = field(default_factory=dict)


def configuration_path(given: str | None) -> Path:
    """The file: the given one, else that of the environment, else the user's."""
    named = given or os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "lakebed" / "config.toml"


def read_configuration(given: str | None) -> Configuration:
    """The configuration; an empty one if the user's file is not there.

    Raises NotFoundError if a file that is named is not there, UsageError if it is not as docs/configuration.md says.
    """
    path = configuration_path(given)
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if given or os.environ.get(CONFIG_VARIABLE):
            raise Code.SOURCE_NOT_FOUND(f"no configuration file {path}") from None
        return Configuration(path)
    except (OSError, UnicodeDecodeError) as error:
        raise Code.ARGUMENT_INVALID(f"{path}: cannot be read: {error}") from error
    import tomllib

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Code.ARGUMENT_INVALID(f"{path}: not TOML: {error}") from error
    _check_names(path, "", found, _TOP)
    instances = found.get("instances", {})
    if not isinstance(instances, dict):
        raise Code.ARGUMENT_INVALID(f"{path}: instances is to be tables such as [instances.prod]")
    default = _text(path, "default", found.get("default"))
    return Configuration(path, default, {name: _instance(path, name, value) for name, value in instances.items()})


def _instance(path: Path, name: str, given: Any) -> NamedInstance:
    where = f"instances.{name}"
    if not isinstance(given, dict) or "url" not in given:
        raise Code.ARGUMENT_INVALID(f'{path}: {where} needs a url, such as url = "s3://bucket/lake"')
    _check_names(path, f"{where}: ", given, _OF_INSTANCE)
    options = given.get("options", {})
    if not isinstance(options, dict):
        raise Code.ARGUMENT_INVALID(f"{path}: {where}.options is to be a table of storage options")
    for key, value in options.items():
        _check_source(path, f"{where}.options.{key}", value)
    token = given.get("token")
    if isinstance(token, str):
        # Without the value.
        raise Code.ARGUMENT_INVALID(
            f'{path}: {where}.token stands in the file; keep it elsewhere: token = {{ env = "NAME" }} or '
            '{ file = "PATH" }'
        )
    if token is not None:
        _check_source(path, f"{where}.token", token)
    texts = {key: _text(path, f"{where}.{key}", given.get(key)) for key in ("url", "log_url", "commit_via")}
    return NamedInstance(
        name, path, texts["url"] or "", texts["log_url"], texts["commit_via"], secret_token=token, options=options
    )


def _text(path: Path, key: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise Code.ARGUMENT_INVALID(f"{path}: {key} = {value!r}: must be a text")
    return value


def _check_source(path: Path, key: str, value: Any) -> None:
    is_source = isinstance(value, dict) and len(value) == 1 and {*value} <= {"env", "file"}
    if not (isinstance(value, str) or (is_source and isinstance(next(iter(value.values())), str))):
        raise Code.ARGUMENT_INVALID(f'{path}: {key} must be a text, {{ env = "NAME" }} or {{ file = "PATH" }}')


def _check_names(path: Path, where: str, found: Mapping[str, Any], known: set[str]) -> None:
    for name in found:
        if name not in known:
            raise Code.ARGUMENT_INVALID(
                f"{path}: {where}unknown key {name!r}; keys: {', '.join(sorted(known))}{did_you_mean(name, known)}"
            )


# -- lakebed config ------------------------------------------------------------------------------------------------


@command
def path(cli: Invocation) -> None:
    """Print which configuration file is read."""
    found = configuration_path(cli.config)
    cli.out.document({"path": str(found), "exists": found.exists()}, [str(found)])


@command
def show(cli: Invocation) -> None:
    """Show the configuration file as it is understood; secrets are not shown."""
    found = cli.configuration
    documents = [_shown(one) for one in found.instances.values()]
    document = {"path": str(found.path), "default": found.default, "instances": documents}
    lines = [f"{found.path}{'' if found.path.exists() else ' (not there)'}"]
    lines += [f"default: {found.default}"] if found.default else []
    for one in documents:
        lines.append(f"instance {one['name']}: {one['url']}")
        lines += [f"  {key}: {one[key]}" for key in ("log_url", "commit_via", "token") if one[key] is not None]
        lines += [f"  option {key}: {value}" for key, value in one["options"].items()]
    cli.out.document(document, lines)


def _shown(one: NamedInstance) -> dict[str, Any]:
    return {
        "name": one.name,
        "url": one.url,
        "log_url": one.log_url,
        "commit_via": one.commit_via,
        "token": None if one.secret_token is None else _shown_source(one.secret_token),
        "options": {key: _shown_option(key, value) for key, value in one.options.items()},
    }


def _shown_option(key: str, value: Any) -> str:
    if isinstance(value, str):
        return "(not shown)" if any(word in key.lower() for word in _SECRET_WORDS) else value
    return _shown_source(value)


def _shown_source(value: Mapping[str, str]) -> str:
    ((source, name),) = value.items()
    return f"in the {'environment variable' if source == 'env' else 'file'} {name}"
