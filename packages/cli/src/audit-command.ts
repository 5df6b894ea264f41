/** `coppice audit verify`: checks an audit log offline; it needs only the file and the team's secret. */
import { createReadStream, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import {
  parseAuditHead,
  parseAuditLine,
  type AuditEntry,
  type AuditHead,
} from '../../sdk/src/audit/audit-entry.ts';
import { verifyAudit } from '../../sdk/src/audit/verify-audit.ts';

const USAGE = `usage: coppice audit verify <file> [--secret-file <file>] [--head <seq>:<hmac> | --head <file>] [--prefix]

  <file>         the log, as GET /v1/runs/{id}/audit returns it; "-" reads standard input
  --secret-file  file with the team's secret; default: the environment variable COPPICE_TEAM_SECRET
  --head         the answer of GET /v1/runs/{id}/audit?head=true, or a file that holds it; needed to detect a missing end
  --prefix       accepts a log that ends before the sandbox did

exit code: 0 the log is unchanged, 1 it is not, 2 it could not be checked
`;

const EXIT = { good: 0, bad: 1, unchecked: 2 } as const;
const HEAD = /^(\d{1,15}):(sha256:[0-9a-f]{64})$/u;

/** The log could not be checked; the message names the remedy. */
class UncheckedError extends Error {}

/** A line is not an audit entry: the log was altered, or cut off in the middle of a line. */
class LineError extends Error {}

interface Request {
  file: string;
  secret: string;
  head: AuditHead | undefined;
  isPrefix: boolean;
}

async function main(args: string[]): Promise<number> {
  try {
    return await verify(readRequest(args));
  } catch (error) {
    if (error instanceof LineError) return report(EXIT.bad, `NOT VALID: ${error.message}`);
    if (!(error instanceof UncheckedError)) throw error;
    return report(EXIT.unchecked, error.message);
  }
}

async function verify({ file, secret, head, isPrefix }: Request): Promise<number> {
  const verdict = await verifyAudit(readEntries(file), secret, { head });
  if (!verdict.valid) {
    const good = `${verdict.entries} ${verdict.entries === 1 ? 'entry' : 'entries'} before it valid`;
    return report(EXIT.bad, `NOT VALID (${verdict.problem}): ${verdict.message}; ${good}`);
  }
  if (verdict.complete) return report(EXIT.good, `valid: ${verdict.entries} entries, none missing`);
  if (isPrefix)
    return report(EXIT.good, `valid so far: ${verdict.entries} entries; later entries are not known`);
  return report(
    EXIT.bad,
    `NOT COMPLETE: ${verdict.entries} entries are valid, but the last is not the end of the sandbox; ` +
      'give --head to see whether entries are missing, or --prefix if the sandbox still existed',
  );
}

function report(exitCode: number, message: string): number {
  (exitCode === EXIT.good ? process.stdout : process.stderr).write(`coppice audit: ${message}\n`);
  return exitCode;
}

function readRequest(args: string[]): Request {
  const { values, positionals } = parse(args);
  const [action, file, ...rest] = positionals;
  if (action !== 'verify' || file === undefined || rest.length > 0)
    throw new UncheckedError(`expected "verify" and one file\n\n${USAGE}`);
  return {
    file,
    secret: readSecret(values['secret-file']),
    head: values.head === undefined ? undefined : readHead(values.head),
    isPrefix: values.prefix,
  };
}

function parse(args: string[]) {
  const options = {
    'secret-file': { type: 'string' },
    head: { type: 'string' },
    prefix: { type: 'boolean', default: false },
  } as const;
  try {
    return parseArgs({ args, options, allowPositionals: true });
  } catch (error) {
    throw new UncheckedError(`${describe(error)}\n\n${USAGE}`);
  }
}

function readSecret(path: string | undefined): string {
  const secret = (path === undefined ? process.env['COPPICE_TEAM_SECRET'] : readText(path))?.trim();
  if (secret !== undefined && secret !== '') return secret;
  throw new UncheckedError(
    path === undefined
      ? "the team's secret is required: give --secret-file, or set COPPICE_TEAM_SECRET"
      : `${path} is empty: it must hold the team's secret`,
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

async function* readEntries(file: string): AsyncGenerator<AuditEntry> {
  const input = file === '-' ? process.stdin : createReadStream(file);
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => undefined);
  input.once('error', (error: unknown) => failed.reject(error));
  let number = 0;
  const lines = createInterface({ input, crlfDelay: Infinity })[Symbol.asyncIterator]();
  for (;;) {
    const line = await Promise.race([lines.next(), failed.promise]).catch((error: unknown) => {
      throw new UncheckedError(`${file} cannot be read: ${describe(error)}`);
    });
    if (line.done === true) return;
    number += 1;
    if (line.value !== '') yield parseLine(line.value, number);
  }
}

function parseLine(line: string, number: number): AuditEntry {
  try {
    return parseAuditLine(line);
  } catch (error) {
    throw new LineError(`line ${number} is not an audit entry: ${describe(error)}`);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

process.exitCode = await main(process.argv.slice(2));
