"""The two ways in which a certificate can fail before its claim is even judged."""


class CertificateError(ValueError):
    """The file or object is not a readable certificate (truncated, pickled, wrong keys, ...)."""


class InvalidWitness(ValueError):
    """The certificate is readable, but its witness or subject proves nothing; verdict: does not hold."""
