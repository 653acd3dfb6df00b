"""One turn from request to answer: the only floor that knows all below it."""
