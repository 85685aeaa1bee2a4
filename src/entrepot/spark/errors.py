"""What keeps a pipeline from running. It imports nothing, so whoever catches it starts quickly."""


class PipelineError(Exception):
    """What is wrong, in words for whoever wrote the pipeline."""
