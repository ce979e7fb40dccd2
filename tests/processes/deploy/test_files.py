"""The files of deploy/: their syntax, the commands in them, and what they promise."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.pages import parse

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "lakebed"
HELM = os.environ.get("HELM") or shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed; make test-deploy builds it")
ANALYZE = shutil.which("systemd-analyze")


def read(*parts):
    return DEPLOY.joinpath(*parts).read_text("utf-8")


# -- syntax -----------------------------------------------------------------------------------------------------------


def test_every_yaml_file_can_be_read():
    files = [path for path in DEPLOY.rglob("*.y*ml") if "templates" not in path.parts]
    assert len(files) >= 7
    for path in files:
        assert list(yaml.safe_load_all(path.read_text("utf-8"))), path


def instructions(text):
    """The instructions of a Dockerfile: name and argument, continued lines joined, comments left out."""
    plain = "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    joined = re.sub(r"\\\n", " ", plain)
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def test_the_image_has_two_stages_no_root_and_a_health_check():
    found = instructions(read("docker", "Dockerfile"))
    known = {
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {name for name, _ in found} <= known
    stages = [at for at, (name, _) in enumerate(found) if name == "FROM"]
    assert len(stages) == 2
    last = dict(found[stages[1] :])
    assert int(last["USER"]) > 0
    assert json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[0] == "python"
    sources = [word for name, line in found[: stages[1]] if name == "COPY" for word in line.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text("utf-8")
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}\n" in ignored


def test_the_extras_of_the_image_exist():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (wanted,) = re.findall(r'"\.\[([^\]]+)\]"', read("docker", "Dockerfile"))
    assert set(wanted.split(",")) <= set(extras)


def test_the_dag_is_python():
    assert ast.parse(read("airflow", "lakebed_maintain.py"))


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "lakebed.service"
    # Neither the user nor the program need be there.
    text = re.sub(r"^(User|Group)=.*\n", "", read("systemd", "lakebed.service"), flags=re.MULTILINE)
    unit.write_text(text.replace("/opt/lakebed/bin/lakebed", "/bin/true"), "utf-8")
    ran = subprocess.run([ANALYZE, "verify", unit], capture_output=True, text=True, check=False)
    said = [line for line in (ran.stdout + ran.stderr).splitlines() if "lakebed.service" in line]
    assert not said


# -- commands ---------------------------------------------------------------------------------------------------------


def in_unit():
    (line,) = re.findall(r"^ExecStart=(.*)$", read("systemd", "lakebed.service"), re.MULTILINE)
    return [shlex.split(line)[1:]]


def in_image():
    found = dict(instructions(read("docker", "Dockerfile")))
    assert json.loads(found["ENTRYPOINT"]) == ["lakebed"]
    return [json.loads(found["CMD"])]


def in_compose():
    services = yaml.safe_load(read("compose", "compose.yaml"))["services"]
    lines = re.findall(r"lakebed ([a-z][^|>&]*)", services["create"]["entrypoint"][-1])
    return [services["lakebed"]["command"], *map(shlex.split, lines)]


def in_cronjob():
    job = yaml.safe_load(read("kubernetes", "maintain-cronjob.yaml"))
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return [container["args"]]


def in_dag():
    (line,) = re.findall(r'bash_command="lakebed ([^"]*)"', read("airflow", "lakebed_maintain.py"))
    return [shlex.split(line)]


@pytest.mark.parametrize("commands", [in_unit, in_image, in_compose, in_cronjob, in_dag], ids=lambda one: one.__name__)
def test_commands_are_those_of_the_command_line(commands):
    assert [parse(words) for words in commands()]


# -- the chart --------------------------------------------------------------------------------------------------------


def rendered(*options):
    ran = subprocess.run(
        [HELM, "template", "lake", CHART, "--set", "instance=s3://bucket/lake", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(ran.stdout) if one}


def pod(document):
    spec = document["spec"]
    return spec["jobTemplate"]["spec"]["template"]["spec"] if "jobTemplate" in spec else spec["template"]["spec"]


@needs_helm
def test_helm_finds_no_fault_with_the_chart():
    ran = subprocess.run(
        [HELM, "lint", "--strict", CHART, "--set", "instance=s3://b/l"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


@needs_helm
def test_the_chart_makes_a_service_with_probes_that_exist():
    from lakebed.server.web.app import API, routes_in

    made = rendered(
        "--set", "secretRefs={store}", "--set", "env.AWS_REGION=eu-west-1", "--set", "args={--no-maintenance}"
    )
    assert set(made) == {"ConfigMap", "ServiceAccount", "Service", "Deployment", "PodDisruptionBudget"}
    (container,) = pod(made["Deployment"])["containers"]
    assert parse([one for one in container["args"] if one != "--no-maintenance"]) == "serve"
    assert container["args"][-1] == "--no-maintenance"
    assert {"secretRef": {"name": "store"}} in container["envFrom"]
    assert made["ConfigMap"]["data"] == {"AWS_REGION": "eu-west-1", "LAKEBED_INSTANCE": "s3://bucket/lake"}
    paths = {path for handler in routes_in(*API) for path in handler.paths}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    assert (
        made["Service"]["spec"]["selector"].items()
        <= made["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    )
    assert pod(made["Deployment"])["securityContext"]["runAsNonRoot"] is True


@needs_helm
def test_the_chart_makes_a_cronjob_instead():
    made = rendered("--set", "mode=cron", "--set", "networkPolicy.enabled=true")
    assert set(made) == {"ConfigMap", "ServiceAccount", "CronJob", "NetworkPolicy"}
    (container,) = pod(made["CronJob"])["containers"]
    assert parse(container["args"]) == "maintain"
    assert not made["NetworkPolicy"]["spec"]["ingress"]


@needs_helm
def test_all_options_of_the_chart_render():
    made = rendered(
        "--set", "networkPolicy.enabled=true", "--set", "serviceMonitor=true", "--set", "scratchSize=50Gi",
        "--set", "serviceAccount.annotations.a=b", "--set", "nodeSelector.disk=ssd", "--set", "podAnnotations.c=d",
        "--set", "configMapRefs={more}", "--api-versions", "monitoring.coreos.com/v1",
    )  # fmt: skip
    assert {"NetworkPolicy", "ServiceMonitor"} <= set(made)
    assert pod(made["Deployment"])["volumes"] == [{"name": "scratch", "emptyDir": {"sizeLimit": "50Gi"}}]
    assert made["Deployment"]["spec"]["template"]["metadata"]["annotations"]["c"] == "d"


@needs_helm
def test_the_chart_needs_an_instance_and_a_mode_that_exists():
    for options, said in (([], "set instance"), (["--set", "instance=x", "--set", "mode=both"], "mode: both")):
        ran = subprocess.run([HELM, "template", "lake", CHART, *options], capture_output=True, text=True, check=False)
        assert ran.returncode != 0
        assert said in ran.stderr
