"""Stand-ins of the providers that definitions are shipped for; they import no product code."""
