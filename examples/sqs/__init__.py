"""Amazon SQS with boto3: a pool of workers for photos, and payloads that are too large to send."""
