"""One call of the command line: the values of the options of every command, and the instance that they name.

:class:`Invocation` is the first argument of each command. docs/configuration.md has the precedence of the command line,
the environment, a profile and an instance of the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakebed
from lakebed.errors import Code, NotFoundError
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from lakebed.cli.configuration import Configuration, NamedInstance, Profile
    from lakebed.cli.render import Output
    from lakebed.read.snapshot.snapshot import Snapshot

INSTANCE_VARIABLE = "LAKEBED_INSTANCE"
COMMIT_VIA_VARIABLE = "LAKEBED_COMMIT_VIA"
PROFILE_VARIABLE = "LAKEBED_PROFILE"
TOKEN_VARIABLE = "LAKEBED_TOKEN"  # noqa: S105 - its name
OPTIONS_VARIABLE = "LAKEBED_STORAGE_OPTIONS"
"""Storage options that no command line is to show, as a JSON object."""
HERE = "./lake"
"""The instance where nothing else names one: `lakebed init` makes it, and the other commands find it."""

_ATTRIBUTES = {
    "format": "row_format",
    "json": "as_json",
    "quiet": "quiet",
    "verbose": "verbosity",
    "log_format": "log_format",
    "no_pager": "no_pager",
}
"""The keys of profiles that say how to print and to log, and the attributes of :class:`Invocation` that have them."""
_EXCLUDED = {"format": "json", "json": "format", "quiet": "verbose", "verbose": "quiet"}
"""A key of a profile does not count if the command line has this other option."""


@dataclass
class Invocation:
    """The values of the options of every command, and the objects that follow from them."""

    instance_url: str | None = None
    """A URL or path, or the name of an instance in the configuration."""
    config: str | None = None
    """The configuration file of ``--config``."""
    profile_name: str | None = None
    """Of ``--profile``."""
    from_profile: set[str] = field(default_factory=set)
    """The keys whose values are those of the profile, and not of the command line."""
    storage_options: dict[str, str] = field(default_factory=dict)
    log_url: str | None = None
    commit_via: str | None = None
    as_json: bool = False
    row_format: str | None = None
    """Of :data:`lakebed.cli.render.FORMATS`; None for a command without ``--format``, or where it is not given."""
    quiet: bool = False
    verbosity: int = 0
    log_format: str | None = None
    no_pager: bool = False
    owns_process: bool = False
    """Whether this process runs the command and nothing else."""
    report_url: str | None = None
    report: Report | None = None
    """None until :meth:`begin_report` has written the first document."""
    answer: Mapping[str, Any] | None = None
    """The document of the command's answer, as JSON values."""

    @property
    def out(self) -> Output:
        """The output of the command; a document that it prints is kept for the report."""
        from lakebed.cli.render import Output

        return Output(
            as_json=self.as_json,
            keep=self._keep,
            row_format=self.row_format,
            quiet=self.quiet,
            paged=not self.no_pager,
        )

    def _keep(self, answer: Mapping[str, Any]) -> None:
        self.answer = answer

    def begin_log(self) -> None:
        """Log to stderr according to ``-v``, ``--quiet`` and ``--log-format``; by default only warnings."""
        log_format = self.log_format or "text"
        if self.verbosity or self.quiet or log_format != "text":
            from lakebed.cli.progress import log_to_stderr

            log_to_stderr(verbosity=self.verbosity, quiet=self.quiet, log_format=log_format)

    def log_requests(self) -> None:
        """With ``-v``, log what the command has requested from object stores, and what the cache on disk saved."""
        if self.verbosity and self.owns_process:
            import logging

            from lakebed.model.wording import size_text
            from lakebed.storage.client_errors import SENT
            from lakebed.storage.disk_cache import USE

            sent = SENT.last_hour()
            logging.getLogger("lakebed.storage").info(
                "requested: %d puts and lists, %d gets; the cache on disk saved %d, of %s",
                *(sent.puts, sent.gets, USE.hits, size_text(USE.hit_bytes)),
            )

    def begin_report(self) -> None:
        """Write the first document of the report, if ``--report`` was given. Raises UsageError, StorageError."""
        if self.report_url is None or self.report is not None:
            return

        report = Report(self.report_url, self.url_if_given() or "", self.options_in_force())
        report.write(None, {})
        self.report = report

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration file. Raises as :func:`lakebed.cli.configuration.read_configuration`."""
        from lakebed.cli.configuration import read_configuration

        return read_configuration(self.config)

    @cached_property
    def profile(self) -> Profile | None:
        """The profile of ``--profile``, else of the environment. Raises NotFoundError, and as ``configuration``."""
        name = self.profile_name or os.environ.get(PROFILE_VARIABLE)
        named_by = "--profile" if self.profile_name else PROFILE_VARIABLE
        return self.configuration.profile(name, named_by) if name else None

    def use_profile(self, *, formats: bool) -> None:
        """Use the profile's options for printing and logging, unless the command line overrides them.

        ``formats``: the command has ``--format``.
        """
        if self.profile is None:
            return
        for key, attribute in _ATTRIBUTES.items():
            found = self.chosen(key) if formats or key != "format" else None
            if found is not None and not getattr(self, attribute):
                setattr(self, attribute, found[0])
                self.from_profile.add(key)

    def chosen(self, key: str) -> tuple[Any, str] | None:
        """Return the value in force for a key of profiles except ``options``, and its source; None if nothing sets it.
        Raises as :attr:`profile`.
        """
        return next((found for found in self._candidates(key) if found[0]), None)

    def _candidates(self, key: str) -> Iterator[tuple[Any, str]]:
        """Return the candidate values, in the order of docs/configuration.md."""
        attribute = _ATTRIBUTES.get(key) or {"instance": "instance_url"}.get(key, key)
        if key not in self.from_profile:
            yield getattr(self, attribute), "command line"
        variable = {"instance": INSTANCE_VARIABLE, "commit_via": COMMIT_VIA_VARIABLE}.get(key, "")
        candidates = [(os.environ.get(variable), variable)]
        other = _EXCLUDED.get(key)
        if self.profile is not None and not (other and getattr(self, _ATTRIBUTES[other])):
            found = self.profile.values.get(key), f"profile {self.profile.name}"
            candidates.insert(0 if self.profile_name else 1, found)
        yield from candidates
        if key == "instance":
            yield self.configuration.default, "default"
        elif key in {"log_url", "commit_via"} and (named := self.named_instance) is not None:
            yield getattr(named, key), f"instance {named.name}"

    @property
    def named_instance(self) -> NamedInstance | None:
        """The instance as the configuration describes it; None if it is given by its URL, or not at all."""
        found = self.chosen("instance")
        return None if found is None else self.configuration.instances.get(found[0])

    def url_if_given(self) -> str | None:
        """Return the root of the instance; None if nothing names it, and there is none in the folder ``lake``."""
        found = self.chosen("instance")
        if found is not None:
            named = self.configuration.instances.get(found[0])
            return found[0] if named is None else named.url
        from lakebed.model.files import INSTANCE_NAME

        return HERE if Path(HERE, INSTANCE_NAME).is_file() else None

    def url(self) -> str:
        """Return the root of the instance. Raises UsageError if nothing names it."""
        url = self.url_if_given()
        if not url:
            raise Code.ARGUMENT_MISSING(
                f"which instance? There is none at {HERE}: make it with `lakebed init`, or give --instance URL, set "
                f"{INSTANCE_VARIABLE}, or name a default in {self.configuration.path}"
            )
        return url

    def log_url_in_force(self) -> str | None:
        """Return the URL at which the log is expected, if anything says so."""
        found = self.chosen("log_url")
        return None if found is None else found[0]

    def instance(self) -> lakebed.Instance:
        """Return the instance, opened."""
        named = self.named_instance
        via = found[0] if (found := self.chosen("commit_via")) else None
        # The variable also serves other clients of a service, so it may be set without one.
        token = (os.environ.get(TOKEN_VARIABLE) or (named and named.token()) or None) if via else None
        try:
            return self._opened(commit_via=via, token=token)
        except NotFoundError as error:
            given = found[0] if (found := self.chosen("instance")) else ""
            if named is None and (meant := did_you_mean(given, self.configuration.instances)):
                raise Code(error.code)(f"{error.message}{meant}", **error.facts) from None
            raise

    def instance_to_read(self) -> lakebed.Instance:
        """Return the instance, opened for reading alone: no service for commits is asked."""
        return self._opened()

    def _opened(self, commit_via: str | None = None, token: str | None = None) -> lakebed.Instance:
        self.leave_pandas_out()
        return lakebed.open(
            self.url(),
            storage_options=self.options_in_force(),
            log_url=self.log_url_in_force(),
            commit_via=commit_via,
            token=token,
        )

    def leave_pandas_out(self) -> None:
        """Prevent the import of pandas in a process of the command's own; call this before DataFusion is imported."""
        if self.owns_process:
            from lakebed.model.arrays import leave_pandas_out

            leave_pandas_out()

    def instance_to_serve(self) -> lakebed.Instance:
        """Return the instance, opened for a process that runs for long: with a cache on disk."""
        self.cache_on_disk()
        return self.instance()

    def cache_on_disk(self) -> None:
        """Cache on local disk what is read from an object store, in the usual folder unless another one is chosen."""
        from lakebed.storage import CACHE_DIR, cache_folder, is_object_store
        from lakebed.storage.disk_cache import usual_folder

        chosen, folder = self.options_in_force(), usual_folder()
        is_open = CACHE_DIR not in chosen and not cache_folder(chosen)
        if folder is not None and is_open and is_object_store(self.url()):
            self.storage_options = {**self.storage_options, CACHE_DIR: str(folder)}

    def options_in_force(self) -> dict[str, str]:
        """Return the storage options. Raises UsageError, also for a variable or file that the configuration names and
        that is not there.
        """
        from lakebed.cli.configuration import read_value

        path = self.configuration.path
        return {
            name: read_value(f"{path}: {source}: option {name}", value)
            for name, (value, source) in self.chosen_options().items()
        }

    def chosen_options(self) -> dict[str, tuple[Any, str]]:
        """Return the storage options as they were given, and where each is from. Raises UsageError."""
        from lakebed.model.documents import load

        try:
            found = load(os.environ.get(OPTIONS_VARIABLE) or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            # Without the value, which may be a secret.
            raise Code.ARGUMENT_INVALID(
                f'{OPTIONS_VARIABLE} is not a JSON object of texts, such as {{"aws_region": "eu-west-1"}}'
            )
        sources: list[tuple[str, Mapping[str, Any]]] = [(OPTIONS_VARIABLE, found)]
        if self.profile is not None:
            sources.insert(1 if self.profile_name else 0, (f"profile {self.profile.name}", self.profile.options))
        if (named := self.named_instance) is not None:
            sources.insert(0, (f"instance {named.name}", named.options))
        sources.append(("command line", self.storage_options))
        return {name: (value, source) for source, options in sources for name, value in options.items()}

    def table(self, name: str) -> lakebed.Table:
        """Return a table of the instance."""
        return self.instance().table(name)

    def snapshot(self, name: str, at: str | None) -> lakebed.Table | Snapshot:
        """Return a table, or with ``--at`` the table as it was."""
        table = self.table(name)
        if at is None:
            return table
        return table.at(at)


class Report:
    """``--report URL``: the outcome of a command, as one JSON document at a path or a store's URL.

    A driver that ``spark-submit --deploy-mode cluster`` starts runs on another machine, so its stdout is not seen. The
    document is written twice: before the command does anything, with ``exit_code`` null, and when it has ended. A URL
    that cannot be written to is therefore refused before anything is done, and the report of an earlier command is
    never mistaken for that of this one. Each write replaces the object atomically.

    ``options`` are those of the instance at ``home``, used if both URLs are of one kind. Raises UsageError if the URL
    names no file.
    """

    def __init__(self, url: str, home: str, options: Mapping[str, str]) -> None:
        from lakebed.storage import connect
        from lakebed.storage.external import options_for
        from lakebed.storage.local import user_path

        absolute = url if "://" in url else str(user_path(url).absolute())
        folder, _, name = absolute.rpartition("/")
        if not name or url.endswith("/"):
            raise Code.URL_INVALID(f"--report {url} must name a file, such as s3://bucket/reports/monday.json")
        self._name = name
        self._storage = connect(f"{folder}/", options_for(url, home, options))

    def write(self, exit_code: int | None, outcome: Mapping[str, Any]) -> None:
        """Replace the document; ``exit_code`` is null while the command runs. Raises StorageError."""
        from lakebed.model.json_values import json_text

        text = json_text({"exit_code": exit_code, **outcome})
        self._storage.replace(self._name, f"{text}\n".encode())
