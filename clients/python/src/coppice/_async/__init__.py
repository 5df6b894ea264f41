"""The asynchronous client. scripts/generate_sync.py makes the synchronous client from these modules."""
