"""The names that the stack and the code must agree on."""

PK = "pk"
SK = "sk"
TTL = "expires"

OUTPUTS = "outputs/"
"""Key prefix of what runs leave behind; everything else in the bucket belongs to a living job."""
