"""Pipelines: functions from DataFrame to DataFrame that say what they read and write.

A pipeline is a plain function, so it is tested on plain rows. Around it a runner builds what
production needs: the same function over live records, over a replay of all of them into a
fresh view (Kappa), over history as a table, and over both, merged (Lambda).
"""

from entrepot.spark.errors import PipelineError
from entrepot.spark.pipelines.declaring import (
    Delta,
    Parquet,
    Pipeline,
    Queue,
    Table,
    Topic,
    pipeline,
)
from entrepot.spark.pipelines.inputs import QueueAddress
from entrepot.spark.pipelines.runner import Runner

__all__ = [
    "Delta",
    "Parquet",
    "Pipeline",
    "PipelineError",
    "Queue",
    "QueueAddress",
    "Runner",
    "Table",
    "Topic",
    "pipeline",
]
