/** The terminals of the sandbox that the page shows. They stay open while the reader looks at its other tabs. */

interface Closable {
  close: () => void;
}

const open = new Map<string, Set<Closable>>();

export function keepTerminal(sandboxId: string, terminal: Closable): void {
  const kept = open.get(sandboxId) ?? new Set();
  kept.add(terminal);
  open.set(sandboxId, kept);
}

export function forgetTerminal(sandboxId: string, terminal: Closable): void {
  open.get(sandboxId)?.delete(terminal);
}

/** Closes all terminals of a sandbox: its page is no longer shown. */
export function closeTerminals(sandboxId: string): void {
  for (const terminal of open.get(sandboxId) ?? []) terminal.close();
  open.delete(sandboxId);
}
