"""The jars of the audit's image. Goal: the image has a file system for each path in a documented recipe. Method: the
test starts Spark as the image's build does, with the same packages, and looks up the file-system class of each URL
scheme in examples and documents. It excludes the AWS SDK, which has hundreds of megabytes, and reads from the file
system's POM that it depends on the SDK.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from postdate.spark.session.start import image_packages, s3_package
from support.deployments.sidecars import environment
from support.repository import ROOT

_RECIPES = [*ROOT.glob("examples/**/*.*"), *ROOT.glob("docs/*.md"), *ROOT.glob("charts/postdate/*.*")]
_SDK = "software.amazon.awssdk"
_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
packages, excludes, *schemes = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.defaultJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
spark = builder.config("spark.jars.packages", packages).config("spark.jars.excludes", excludes).getOrCreate()
jvm, settings = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
base = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
found = {}
for scheme in schemes:
    name = settings.get(f"fs.{scheme}.impl")
    try:
        found[scheme] = base.isAssignableFrom(jvm.java.lang.Class.forName(name, False, loader))
    except Exception as error:
        found[scheme] = str(error)
home = jvm.java.lang.System.getProperty("user.home")
spark.stop()
print(json.dumps({"found": found, "home": home}))
"""


def schemes() -> set[str]:
    """Returns the schemes of the URLs of buckets and containers in recipes; a string in a program may continue on the
    next line."""
    return {
        found
        for path in _RECIPES
        if "node_modules" not in path.parts
        for found in re.findall(r"\b([a-z0-9]+)://bucket\b", path.read_text(encoding="utf-8", errors="replace"))
    }


def test_the_image_is_built_with_these_packages() -> None:
    text = (ROOT / "audit.Dockerfile").read_text(encoding="utf-8")
    assert ".config('spark.jars.packages', image_packages())" in text
    assert re.search(r"cp /tmp/ivy/jars/\*\.jar ", text)


@pytest.mark.parametrize("recipe", ["examples/airflow/postdate_audit.py", "docs/pipeline.md"])
def test_a_recipe_without_the_image_names_the_same_packages(recipe: str) -> None:
    text = (ROOT / recipe).read_text(encoding="utf-8")
    assert [package for package in image_packages().split(",") if package not in text] == []


def test_each_scheme_of_a_recipe_has_a_file_system() -> None:
    wanted = sorted(schemes())
    assert wanted == ["s3a"]
    command = [sys.executable, "-c", _PROGRAM, image_packages(), f"{_SDK}:bundle", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr[-4_000:]
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["found"] == dict.fromkeys(wanted, True)
    _, name, version = s3_package().split(":")
    (description,) = Path(printed["home"]).glob(f".ivy2*/cache/org.apache.hadoop/{name}/ivy-{version}.xml")
    brought = {
        one.get("name"): str(one.get("conf"))
        for one in ElementTree.parse(description).iter("dependency")  # noqa: S314
        if one.get("org") == _SDK
    }
    assert brought.keys() == {"bundle"}
    assert brought["bundle"].startswith("compile->")
