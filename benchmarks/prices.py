"""The prices that benchmarks use, in US$, with their dates: the one place to change.

List prices of AWS in us-east-1, without discounts. Requests are priced as the service prices its own
(:mod:`lakebed.server.service.status`).
"""

from __future__ import annotations

from benchmarks.results import CORE_SECOND_USD
from lakebed.server.service.status import GET_DOLLARS, PUT_DOLLARS

AS_OF = "S3 as of June 2026, Fargate as of March 2026"
AS_OF_SPARK = "EMR Serverless as of 2022, not looked up again"
PUT, GET = PUT_DOLLARS, GET_DOLLARS
"""S3 Standard: a put, list or part of an upload; a get or head. Deletes are free."""
GB_MONTH = 0.023
"""S3 Standard: 10⁹ bytes for a month, of the first 50 TB."""
FARGATE_CORE_S = CORE_SECOND_USD
FARGATE_GB_S = 0.004445 / 3600
EMR_CORE_S = 0.052624 / 3600
EMR_GB_S = 0.0057785 / 3600
"""EMR Serverless, x86: a vCPU and a GB of memory for a second."""

MONTH_DAYS = 30
MONTH_S = MONTH_DAYS * 86_400.0


def fargate_usd(cores: float, memory_gb: float, seconds: float = MONTH_S) -> float:
    """Return the price of a container for so long."""
    return seconds * (cores * FARGATE_CORE_S + memory_gb * FARGATE_GB_S)


def spark_usd(core_s: float, gb_per_core: float = 4.0) -> float:
    """Return the price of so many seconds of cores of EMR Serverless, each with its memory."""
    return core_s * (EMR_CORE_S + gb_per_core * EMR_GB_S)
