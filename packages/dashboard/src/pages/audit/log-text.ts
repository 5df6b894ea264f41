/** Logs as text, one entry a line, and their heads. */
import type { AuditEntry, AuditHead } from '../../../../sdk/src/index.ts';

const HEAD = /^(\d{1,10}):(sha256:[0-9a-f]{64})$/u;

/** Parses the lines of a log. */
export function readLines<Entry>(text: string, parse: (line: string) => Entry): Entry[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map(parse);
}

/** Writes the log of a sandbox as the service sends it. */
export function writeSandboxLog(entries: readonly AuditEntry[]): string {
  return entries
    .map(({ seq, ts, sandboxId, event, data, hmac }) =>
      JSON.stringify({ seq, ts, sandbox_id: sandboxId, event, data, hmac }),
    )
    .map((line) => `${line}\n`)
    .join('');
}

/** Writes a head as `coppice audit verify` takes it. */
export function writeHead({ seq, hmac }: { seq: number; hmac: string }): string {
  return `${seq}:${hmac}`;
}

/** Reads a head; undefined for an empty text. Throws an error that says which form it has. */
export function readHead(text: string): AuditHead | undefined {
  const trimmed = text.trim();
  if (trimmed === '') return undefined;
  const [, seq, hmac] = HEAD.exec(trimmed) ?? [];
  if (seq === undefined || hmac === undefined)
    throw new Error('Earlier head: write the number of the entry, a colon and its hash, as in 57:sha256:…');
  return { seq: Number(seq), hmac };
}
