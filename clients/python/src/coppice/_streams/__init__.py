"""WebSockets of both clients, on an event loop. The synchronous client runs it in a thread."""
