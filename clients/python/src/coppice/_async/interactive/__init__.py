"""Commands with open input, shells and terminals, over WebSockets."""
