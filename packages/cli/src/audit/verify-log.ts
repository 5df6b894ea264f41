/** Checks an audit log offline: it needs only the file and the team's secret. */
import { createReadStream, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { parseAuditHead, parseAuditLine, type AuditHead } from '../../../sdk/src/audit/audit-entry.ts';
import type { AuditVerdict } from '../../../sdk/src/audit/audit-verdict.ts';
import {
  parseOrganizationAuditLine,
  type OrganizationAuditEntry,
} from '../../../sdk/src/audit/organization-audit-entry.ts';
import { verifyAudit } from '../../../sdk/src/audit/verify-audit.ts';
import { verifyOrganizationAudit } from '../../../sdk/src/audit/verify-organization-audit.ts';

/** Outcome of a check, which is the exit code: the log is unchanged, it is not, or it could not be checked. */
export const VERDICT = { good: 0, bad: 1, unchecked: 2 } as const;

const HEAD = /^(\d{1,15}):(sha256:[0-9a-f]{64})$/u;

/** The log could not be checked; the message names the remedy. */
class UncheckedError extends Error {}

/** A line is not an audit entry: the log was altered, or cut off in the middle of a line. */
class LineError extends Error {}

export interface LogCheck {
  /** Path of the log; `-` is standard input. */
  file: string;
  secretFile?: string;
  /** `<seq>:<hmac>`, or path of a file that holds the answer of the service. */
  head?: string;
  /** Accepts a log that ends before the sandbox did. */
  prefix?: boolean;
}

export interface LogVerdict {
  exitCode: (typeof VERDICT)[keyof typeof VERDICT];
  message: string;
}

/** Checks a log. */
export async function verifyLog({ file, secretFile, head, prefix }: LogCheck): Promise<LogVerdict> {
  try {
    const secret = readSecret(secretFile);
    const verdict = await verifyLines(
      readLines(file),
      secret,
      head === undefined ? undefined : readHead(head),
    );
    return judge(verdict, prefix === true);
  } catch (error) {
    if (error instanceof LineError) return { exitCode: VERDICT.bad, message: `NOT VALID: ${error.message}` };
    if (error instanceof UncheckedError) return { exitCode: VERDICT.unchecked, message: error.message };
    throw error;
  }
}

/** The first entry tells whether the log is that of a sandbox or of an organization. */
async function verifyLines(
  lines: AsyncGenerator<Line>,
  secret: string,
  head: AuditHead | undefined,
): Promise<AuditVerdict> {
  const first = await lines.next();
  const all = async function* all(): AsyncGenerator<Line> {
    if (first.done === true) return;
    yield first.value;
    yield* lines;
  };
  if (first.done === true || !isOfOrganization(first.value))
    return verifyAudit(parseLines(all(), parseAuditLine), secret, { head });
  const entries: AsyncGenerator<OrganizationAuditEntry> = parseLines(all(), parseOrganizationAuditLine);
  return verifyOrganizationAudit(entries, readSecrets(secret), { head });
}

function isOfOrganization({ text }: Line): boolean {
  try {
    return Object.hasOwn(JSON.parse(text) as object, 'organization_id');
  } catch {
    return false;
  }
}

/** Reads the secrets of an organization by id. */
function readSecrets(text: string): Record<string, string> {
  const secrets = text.split('\n').map((line) => line.trim().split(/\s+/u));
  if (secrets.every(({ length }) => length === 2))
    return Object.fromEntries(secrets) as Record<string, string>;
  throw new UncheckedError(
    'the log is that of an organization: the file of its secrets must have a line "<id> <secret>" for each, as "ask… cos_…"',
  );
}

function judge(verdict: AuditVerdict, isPrefix: boolean): LogVerdict {
  const { bad, good } = VERDICT;
  if (!verdict.valid) {
    const before = `${verdict.entries} ${verdict.entries === 1 ? 'entry' : 'entries'} before it valid`;
    return { exitCode: bad, message: `NOT VALID (${verdict.problem}): ${verdict.message}; ${before}` };
  }
  if (verdict.complete) return { exitCode: good, message: `valid: ${verdict.entries} entries, none missing` };
  if (isPrefix)
    return {
      exitCode: good,
      message: `valid so far: ${verdict.entries} entries; later entries are not known`,
    };
  return {
    exitCode: bad,
    message:
      `NOT COMPLETE: ${verdict.entries} entries are valid, but nothing shows that they are all; ` +
      'give --head to see whether entries are missing, or --prefix if more may follow',
  };
}

function readSecret(path: string | undefined): string {
  const secret = (path === undefined ? process.env['COPPICE_TEAM_SECRET'] : readText(path))?.trim();
  if (secret !== undefined && secret !== '') return secret;
  throw new UncheckedError(
    path === undefined
      ? 'the secret of the team or organization is required: give --secret-file, or set COPPICE_TEAM_SECRET'
      : `${path} is empty: it must hold the secret of the team or organization`,
  );
}

function readHead(text: string): AuditHead {
  const match = HEAD.exec(text);
  if (match?.[2] !== undefined) return { seq: Number(match[1]), hmac: match[2] };
  try {
    return parseAuditHead(JSON.parse(readText(text)));
  } catch (error) {
    throw new UncheckedError(
      `--head is neither <seq>:sha256:<64 hexadecimal digits> nor a file that holds {"seq","hmac"}: ${describe(error)}`,
    );
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UncheckedError(`${path} cannot be read: ${describe(error)}`);
  }
}

interface Line {
  text: string;
  number: number;
}

async function* readLines(file: string): AsyncGenerator<Line> {
  const input = file === '-' ? process.stdin : createReadStream(file);
  // The interface does not report errors of its input, and would wait for more lines.
  const failed = new Promise<never>((_, reject) => void input.once('error', reject));
  failed.catch(() => undefined);
  let number = 0;
  const lines = createInterface({ input, crlfDelay: Infinity })[Symbol.asyncIterator]();
  for (;;) {
    const line = await Promise.race([lines.next(), failed]).catch((error: unknown) => {
      throw new UncheckedError(`${file} cannot be read: ${describe(error)}`);
    });
    if (line.done === true) return;
    number += 1;
    if (line.value !== '') yield { text: line.value, number };
  }
}

async function* parseLines<E>(lines: AsyncIterable<Line>, parse: (text: string) => E): AsyncGenerator<E> {
  for await (const { text, number } of lines) {
    let entry: E;
    try {
      entry = parse(text);
    } catch (error) {
      throw new LineError(`line ${number} is not an audit entry: ${describe(error)}`);
    }
    yield entry;
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
