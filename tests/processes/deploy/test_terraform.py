"""The modules of deploy/terraform: formatted, every name in them defined, every argument one of its resource.

Providers are not installed: their arguments are those of the documentation of hashicorp/aws and hashicorp/google, as
far as the modules use them. Policies are tested where requests are recorded, in tests/s3/test_roles.py.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

import hcl2
import pytest

from tests.pages import parse

FOLDER = Path(__file__).parents[3] / "deploy" / "terraform"
MODULES = ["aws", "gcp"]
TERRAFORM = shutil.which("terraform")

STATEMENT = {"actions": True, "resources": False, "principals": {"type": True, "identifiers": True}}
PORTS = {"description": False, "from_port": True, "to_port": True, "protocol": True, "cidr_blocks": False}
MEMBER = {"role": True, "member": True}
SCHEMAS = {
    "aws_cloudwatch_log_group": {"name": False, "retention_in_days": False},
    "aws_ecs_cluster": {"name": True},
    "aws_ecs_service": {
        "name": True, "cluster": False, "task_definition": False, "desired_count": False, "launch_type": False,
        "network_configuration": {"subnets": True, "security_groups": False, "assign_public_ip": False},
    },
    "aws_ecs_task_definition": {
        "family": True, "container_definitions": True, "requires_compatibilities": False, "network_mode": False,
        "cpu": False, "memory": False, "execution_role_arn": False, "task_role_arn": False,
        "ephemeral_storage": {"size_in_gib": True},
    },
    "aws_emrserverless_application": {
        "name": True, "release_label": True, "type": True,
        "maximum_capacity": {"cpu": True, "memory": True, "disk": False},
        "auto_stop_configuration": {"enabled": False, "idle_timeout_minutes": False},
    },
    "aws_iam_policy_document": {"statement": STATEMENT, "dynamic": {"for_each": True, "content": STATEMENT}},
    "aws_iam_role": {"name": False, "assume_role_policy": True},
    "aws_iam_role_policy": {"name": False, "role": True, "policy": True},
    "aws_iam_role_policy_attachment": {"role": True, "policy_arn": True},
    "aws_s3_bucket": {"bucket": False, "force_destroy": False},
    "aws_s3_bucket_lifecycle_configuration": {
        "bucket": True,
        "rule": {
            "id": True, "status": True, "filter": {},
            "abort_incomplete_multipart_upload": {"days_after_initiation": True},
        },
    },
    "aws_s3_bucket_public_access_block": {
        "bucket": True, "block_public_acls": False, "block_public_policy": False, "ignore_public_acls": False,
        "restrict_public_buckets": False,
    },
    "aws_security_group": {"name": False, "description": False, "vpc_id": False, "ingress": PORTS, "egress": PORTS},
    "google_cloud_run_v2_service": {
        "name": True, "location": True, "ingress": False,
        "template": {
            "service_account": False, "timeout": False, "max_instance_request_concurrency": False,
            "scaling": {"min_instance_count": False, "max_instance_count": False},
            "containers": {
                "image": True, "args": False, "env": {"name": True, "value": False},
                "ports": {"container_port": False}, "resources": {"limits": False, "cpu_idle": False},
                "liveness_probe": {"http_get": {"path": False, "port": False}},
            },
        },
    },
    "google_project_iam_custom_role": {"role_id": True, "title": True, "permissions": True},
    "google_project_iam_member": {"project": True, **MEMBER},
    "google_service_account": {"account_id": True, "display_name": False},
    "google_storage_bucket": {
        "name": True, "location": True, "force_destroy": False, "uniform_bucket_level_access": False,
        "public_access_prevention": False, "soft_delete_policy": {"retention_duration_seconds": False},
        "lifecycle_rule": {"action": {"type": True}, "condition": {"age": False}},
    },
    "google_storage_bucket_iam_member": {"bucket": True, **MEMBER},
}  # fmt: skip
"""The arguments of each kind of resource: whether it is required, or those of a block. A block is a dict."""

META = {"count", "for_each", "depends_on", "lifecycle"}


def plain(value):
    """The value without the marks of the reader: quotes of strings, comments and kinds of blocks."""
    if isinstance(value, dict):
        return {key.strip('"'): plain(one) for key, one in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value[1:-1] if isinstance(value, str) and value[:1] == '"' else value


@functools.cache
def read(module):
    """What the files of a module declare, by kind: resource, data, variable, locals, output."""
    found: dict[str, list] = {}
    for path in sorted((FOLDER / module).glob("*.tf")):
        with path.open() as file:
            for kind, blocks in plain(hcl2.load(file)).items():
                found.setdefault(kind, []).extend(blocks)
    return found


def resources(module):
    """Every resource and data source: the kind of block, its type, its name, its body."""
    return [
        (block, kind, name, body)
        for block in ("resource", "data")
        for one in read(module).get(block, [])
        for kind, named in one.items()
        for name, body in named.items()
    ]


def wrong_arguments(schema, body, where):
    """Yield what the body has and its schema lacks, and what it lacks and the schema requires."""
    for name, value in body.items():
        if name not in schema:
            yield f"{where} has no argument {name}"
        elif isinstance(schema[name], dict):
            for block in value if isinstance(value, list) else [value]:
                inner = next(iter(block.values())) if name == "dynamic" else block
                content = inner.get("content") if name == "dynamic" else None
                yield from wrong_arguments(
                    schema[name], {**inner, "content": content} if content else inner, f"{where}.{name}"
                )
    yield from (f"{where} lacks {name}" for name, need in schema.items() if need is True and name not in body)


@pytest.mark.skipif(TERRAFORM is None, reason="terraform is not installed")
def test_terraform_reads_the_files_and_would_format_none():
    ran = subprocess.run(
        [TERRAFORM, "fmt", "-check", "-recursive", FOLDER], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("module", MODULES)
def test_every_argument_is_one_of_its_resource(module):
    found = resources(module)
    assert len(found) >= 8
    wrong = [
        line
        for _, kind, name, body in found
        for line in wrong_arguments(
            SCHEMAS[kind], {key: value for key, value in body.items() if key not in META}, f"{kind}.{name}"
        )
    ]
    assert not wrong


def test_a_misspelt_or_missing_argument_is_found():
    wrong = wrong_arguments(SCHEMAS["aws_s3_bucket_lifecycle_configuration"], {"bucket": "b", "rule": [{"di": 1}]}, "w")
    assert list(wrong) == ["w.rule has no argument di", "w.rule lacks id", "w.rule lacks status"]


@pytest.mark.parametrize("module", MODULES)
def test_every_name_that_is_used_is_defined_and_every_variable_is_used(module):
    found = read(module)
    variables = {name for one in found["variable"] for name in one}
    names = {"var": variables, "local": {name for one in found.get("locals", []) for name in one}}
    for _, kind, name, _ in resources(module):
        names.setdefault(kind, set()).add(name)
    text = "\n".join(path.read_text() for path in (FOLDER / module).glob("*.tf"))
    plain_text = re.sub(r"#.*", "", text)
    used = re.findall(r"(?<![\w./\"-])(?:data\.)?((?:aws|google)_\w+|var|local)\.(\w+)", plain_text)
    assert len(used) > 20
    assert not [f"{kind}.{name}" for kind, name in used if name not in names.get(kind, ())]
    assert variables == {name for kind, name in used if kind == "var"}


def filled(path):
    """A template as JSON, each value replaced by its name."""
    return json.loads(re.sub(r"\$\{(\w+)\}", r"\1", path.read_text()))


@pytest.mark.parametrize("module", MODULES)
def test_templates_get_exactly_the_values_that_they_name(module):
    text = "\n".join(path.read_text() for path in (FOLDER / module).glob("*.tf"))
    for path in (FOLDER / module).rglob("*.tftpl"):
        filled(path)
        wanted = set(re.findall(r"\$\{(\w+)\}", path.read_text()))
        (given,) = re.findall(re.escape(path.name) + r"\", (?:\{([^}]*)\}|local\.object)", text)
        given = given or re.findall(r"object = \{(.*)\}", text)[0]
        assert wanted == set(re.findall(r"(\w+) +?=", given)), path


def test_commands_are_those_of_the_command_line():
    serve = [re.search(r'\["serve".*?\]', (FOLDER / module / "service.tf").read_text())[0] for module in MODULES]
    aws, gcp = (filled(FOLDER / module / "spark-job.json.tftpl") for module in MODULES)
    jobs = [aws["jobDriver"]["sparkSubmit"]["entryPointArguments"], gcp["pysparkBatch"]["args"]]
    assert [parse(words) for words in (*map(json.loads, serve), *jobs)]
