import { open, rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import type { AuditEntry, OrganizationAuditEntry } from '../../../sdk/src/index.ts';
import { abortOnSignal, withSignals } from '../attach/signals.ts';
import { VERDICT, verifyLog } from '../audit/verify-log.ts';
import { Failure } from '../output/failure.ts';
import { write } from '../output/output.ts';
import { toVisible, toVisibleJson } from '../output/visible-text.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

interface DownloadOptions {
  output?: string;
  follow?: boolean;
  head?: boolean;
}

interface OrganizationOptions {
  output?: string;
  head?: boolean;
  after?: string;
  event?: string;
  actor?: string;
}

interface VerifyOptions {
  secretFile?: string;
  head?: string;
  prefix?: boolean;
}

/** Adds `audit get`, `audit organization` and `audit verify`. `audit <sandbox>` is short for the former. */
export function addAudit(program: Command): void {
  const audit = addCommand(program, {
    syntax: 'audit',
    summary: 'downloads and verifies audit logs',
    details: '"coppice audit run0123" is short for "coppice audit get run0123".',
    examples: [
      'coppice audit run0123 > log.ndjson',
      "coppice audit verify log.ndjson --secret-file secret --head '57:sha256:…'",
    ],
  });
  addDownload(audit);
  addOrganization(audit);
  addVerify(audit);
}

function addDownload(audit: Command): void {
  addCommand(audit, {
    syntax: 'get <sandbox>',
    isDefault: true,
    summary: 'writes the audit log of a sandbox, one JSON object a line',
    details:
      'The log of a sandbox that has ended needs its whole id. Keep the answer of --head elsewhere: it reveals a log whose ' +
      'end was cut off.',
    examples: [
      'coppice audit get run0123456789abcdef0123 -o log.ndjson',
      'coppice audit get run0123 --follow | jq -r .event',
      'coppice audit get run0123 --head > head.json',
    ],
  })
    .option(
      '-o, --output <file>',
      'writes to this file, which must not exist; without --follow, a part of a log is removed again',
    )
    .option('-f, --follow', 'waits for further entries, until the sandbox has ended')
    .option('--head', 'writes number and hash of the last entry instead')
    .action(
      action<DownloadOptions>(async (call) => {
        const { output, follow, head } = call.options;
        const sandbox = await findSandbox(call.connect(), first(call));
        if (head === true) return call.out.event(await sandbox.auditHead());
        const read = (signal?: AbortSignal) => toLines(sandbox.audit({ follow, signal }));
        if (output !== undefined) return writeNewFile(output, read, { keepsPart: follow === true });
        for await (const line of read()) await write(process.stdout, line);
      }),
    );
}

function addOrganization(audit: Command): void {
  addCommand(audit, {
    syntax: 'organization',
    summary: 'writes the audit log of the organization, one JSON object a line',
    details:
      'Changes of keys, members, teams, secrets, webhooks, registries, limits and credit, and sign-ins. The API key needs the ' +
      'scope "full", and must not be limited to its team. With --event or --actor the log cannot be verified. The log of a ' +
      'sandbox that is named "organization": coppice audit get organization.',
    examples: [
      'coppice audit organization -o organization.ndjson',
      'coppice audit organization --event api_key.created | jq -r .data.name',
      'coppice audit organization --head > head.json',
    ],
  })
    .option('-o, --output <file>', 'writes to this file, which must not exist')
    .option('--after <seq>', 'begins after the entry with this number')
    .option('--event <name>', 'only entries of this event')
    .option('--actor <id>', 'only entries that this person or API key caused')
    .option('--head', 'writes number and hash of the last entry instead')
    .action(
      action<OrganizationOptions>(async (call) => {
        const { output, head, after, event, actor } = call.options;
        const { organization } = call.connect();
        if (head === true) return call.out.event(await organization.auditHead());
        const filter = { after: after === undefined ? undefined : readSeq(after), event, actor };
        const read = (signal?: AbortSignal) => toLines(organization.audit({ ...filter, signal }));
        if (output !== undefined) return writeNewFile(output, read, { keepsPart: false });
        for await (const line of read()) await write(process.stdout, line);
      }),
    );
}

function readSeq(text: string): number {
  if (/^\d{1,10}$/u.test(text)) return Number(text);
  throw new Failure(`--after: "${text}" is not the number of an entry`);
}

function addVerify(audit: Command): void {
  addCommand(audit, {
    syntax: 'verify <file>',
    summary: 'verifies an audit log without the service',
    details:
      'Exit code 0: the log is unchanged, 1: it is not, 2: it could not be checked. "-" reads standard input. The log of an ' +
      'organization may have several secrets: its file has a line for each, with id, a space and the secret.',
    examples: [
      'coppice audit verify log.ndjson --secret-file secret --head head.json',
      'coppice audit get run0123 | coppice audit verify - --prefix',
    ],
  })
    .option(
      '--secret-file <file>',
      'file with the secret of the team or organization (default: COPPICE_TEAM_SECRET)',
    )
    .option('--head <head>', '<seq>:<hmac>, or a file with the answer of "audit get --head"')
    .option(
      '--prefix',
      'accepts a log that may continue: that of an organization, or of a sandbox that has not ended',
    )
    .action(
      action<VerifyOptions>(async (call) => {
        const { exitCode, message } = await verifyLog({ file: first(call), ...call.options });
        if (call.out.isJson) await call.out.json({ valid: exitCode === VERDICT.good, message });
        else {
          const stream = exitCode === VERDICT.good ? process.stdout : process.stderr;
          await write(stream, `coppice audit: ${toVisible(message)}\n`);
        }
        return exitCode;
      }),
    );
}

/** Returns the entries as the service sends them: their hashes cover these names. */
async function* toLines(entries: AsyncIterable<AuditEntry | OrganizationAuditEntry>): AsyncGenerator<string> {
  for await (const entry of entries) {
    const { seq, ts, event, data, hmac } = entry;
    const owner =
      'sandboxId' in entry
        ? { sandbox_id: entry.sandboxId }
        : {
            organization_id: entry.organizationId,
            audit_key_id: entry.auditKeyId,
            actor: entry.actor,
          };
    yield `${toVisibleJson({ seq, ts, ...owner, event, data, hmac })}\n`;
  }
}

/**
 * Writes a file that does not exist yet. After a failure or a signal it removes what is written, because that looks like a whole
 * log, unless the user expects a part.
 */
async function writeNewFile(
  path: string,
  read: (signal: AbortSignal) => AsyncIterable<string>,
  { keepsPart }: { keepsPart: boolean },
): Promise<void> {
  const file = await open(path, 'wx').catch((error: NodeJS.ErrnoException) => {
    const why = error.code === 'EEXIST' ? 'it exists already: remove it, or name another' : error.message;
    throw new Failure(`--output: ${path} cannot be created: ${why}`);
  });
  const ending = new AbortController();
  const { signal } = ending;
  try {
    await withSignals(abortOnSignal(ending), () => pipeline(read(signal), file.createWriteStream()));
  } catch (error) {
    if (!keepsPart) await rm(path, { force: true });
    throw signal.aborted ? signal.reason : describeWrite(path, error);
  }
}

function describeWrite(path: string, error: unknown): unknown {
  const isOfFile = error instanceof Error && (error as NodeJS.ErrnoException).syscall === 'write';
  return isOfFile ? new Failure(`--output: ${path} cannot be written: ${error.message}`) : error;
}
