/** The terminals of the sandbox that the page shows. They stay open while the reader looks at its other tabs. */

interface Closable {
  close: () => void;
}

/** A new sign-in draws the page anew: terminals outlive such a moment. */
const LEAVE_MS = 3000;

const open = new Map<string, Set<Closable>>();
const leaving = new Map<string, ReturnType<typeof setTimeout>>();

export function keepTerminal(sandboxId: string, terminal: Closable): void {
  const kept = open.get(sandboxId) ?? new Set();
  kept.add(terminal);
  open.set(sandboxId, kept);
}

export function forgetTerminal(sandboxId: string, terminal: Closable): void {
  open.get(sandboxId)?.delete(terminal);
}

/** Says that the page of a sandbox is shown. The returned function says that it no longer is: its terminals then close. */
export function holdTerminals(sandboxId: string): () => void {
  clearTimeout(leaving.get(sandboxId));
  leaving.delete(sandboxId);
  return () => {
    leaving.set(
      sandboxId,
      setTimeout(() => closeTerminals(sandboxId), LEAVE_MS),
    );
  };
}

function closeTerminals(sandboxId: string): void {
  leaving.delete(sandboxId);
  for (const terminal of open.get(sandboxId) ?? []) terminal.close();
  open.delete(sandboxId);
}
