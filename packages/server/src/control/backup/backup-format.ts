/**
 * A backup of the database, lines of text:
 *
 *     {"format":"coppice-database","version":1,"migration":"0006_teams",…}
 *     organizations⇥{"id":"org…","name":"default",…}                        one line per row
 *     …
 *     {"rows":1234}                                                         a file without it is incomplete
 *
 * A table follows those that its rows refer to. PostgreSQL writes the rows as JSON and PostgreSQL reads them, whatever
 * the versions of the two. Nothing in between parses them, so no digit is lost.
 */
import { z } from 'zod';

export const FORMAT = 'coppice-database';
export const FORMAT_VERSION = 1;

/** An error that the operator can resolve; shown without a stack. */
export class BackupError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'BackupError';
  }
}

export const BackupHead = z.object({
  format: z.literal(FORMAT),
  version: z.literal(FORMAT_VERSION),
  /** Version of Coppice. */
  service: z.string(),
  /** The last migration of the schema. */
  migration: z.string(),
  created_at: z.string(),
});
export type BackupHead = z.infer<typeof BackupHead>;

const BackupEnd = z.object({ rows: z.number().int().nonnegative() });

export function formatRow(table: string, row: string): string {
  return `${table}\t${row}\n`;
}

export type BackupLine = { table: string; row: string } | { end: z.infer<typeof BackupEnd> };

export function parseHead(line: string | undefined): BackupHead {
  const parsed = BackupHead.safeParse(parseJson(line ?? ''));
  if (parsed.success) return parsed.data;
  throw new BackupError('this is no backup of a Coppice database, or one of a newer version', parsed.error);
}

export function parseLine(line: string): BackupLine {
  const tab = line.indexOf('\t');
  if (tab > 0) return { table: line.slice(0, tab), row: line.slice(tab + 1) };
  const parsed = BackupEnd.safeParse(parseJson(line));
  if (parsed.success) return { end: parsed.data };
  throw new BackupError('the backup holds a line that is neither a row nor its end; take another one');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
