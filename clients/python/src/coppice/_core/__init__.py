"""The part of the client without I/O, which the asynchronous and the synchronous client share."""
