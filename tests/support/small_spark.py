"""Settings for a Spark that has a few small jobs to do, on a machine that does other things too.

Compiling the generated code of a plan takes longer than interpreting it for ten rows. The test of the demo runs the
same plans compiled.
"""

from __future__ import annotations

from typing import Final

SMALL_SPARK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
