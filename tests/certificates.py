"""Certificates for tests, made on the spot by the openssl command."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """Paths of PEM files."""

    certificate: str
    key: str


def make(
    directory: Path, name: str, *, subject: str, signer: Certificate | None = None
) -> Certificate:
    """For 127.0.0.1 and localhost, good for a day; signed by itself or by another."""
    made = Certificate(str(directory / f"{name}.pem"), str(directory / f"{name}.key"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "1", "-subj", subject, "-out", made.certificate]
    command += ["-keyout", made.key, "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    if signer is not None:
        command += ["-CA", signer.certificate, "-CAkey", signer.key]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
    return made
