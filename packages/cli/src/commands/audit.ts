import { once } from 'node:events';
import { finished } from 'node:stream/promises';
import { createWriteStream, type WriteStream } from 'node:fs';
import type { Command } from 'commander';
import type { AuditEntry } from '../../../sdk/src/index.ts';
import { VERDICT, verifyLog } from '../audit/verify-log.ts';
import { write } from '../output/output.ts';
import { toVisible } from '../output/visible-text.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

interface DownloadOptions {
  output?: string;
  follow?: boolean;
  head?: boolean;
}

interface VerifyOptions {
  secretFile?: string;
  head?: string;
  prefix?: boolean;
}

/** Adds `audit get` and `audit verify`. `audit <sandbox>` is short for the former. */
export function addAudit(program: Command): void {
  const audit = addCommand(program, {
    syntax: 'audit',
    summary: 'downloads and verifies audit logs',
    details: '"coppice audit run0123" is short for "coppice audit get run0123".',
    examples: [
      'coppice audit run0123 > log.ndjson',
      "COPPICE_TEAM_SECRET=cts_… coppice audit verify log.ndjson --head '57:sha256:…'",
    ],
  });
  addDownload(audit);
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
    .option('-o, --output <file>', 'writes to this file, which must not exist')
    .option('-f, --follow', 'waits for further entries, until the sandbox has ended')
    .option('--head', 'writes number and hash of the last entry instead')
    .action(
      action<DownloadOptions>(async (call) => {
        const { output, follow, head } = call.options;
        const sandbox = await findSandbox(call.connect(), first(call));
        if (head === true) return call.out.event(await sandbox.auditHead());
        const file = output === undefined ? undefined : await createFile(output);
        for await (const entry of sandbox.audit({ follow }))
          await write(file ?? process.stdout, toLine(entry));
        if (file === undefined) return;
        file.end();
        await finished(file);
      }),
    );
}

function addVerify(audit: Command): void {
  addCommand(audit, {
    syntax: 'verify <file>',
    summary: 'verifies an audit log without the service',
    details:
      'Exit code 0: the log is unchanged, 1: it is not, 2: it could not be checked. "-" reads standard input.',
    examples: [
      'coppice audit verify log.ndjson --secret-file secret --head head.json',
      'coppice audit get run0123 | coppice audit verify - --prefix',
    ],
  })
    .option('--secret-file <file>', "file with the team's secret (default: COPPICE_TEAM_SECRET)")
    .option('--head <head>', '<seq>:<hmac>, or a file with the answer of "audit get --head"')
    .option('--prefix', 'accepts a log that ends before the sandbox did')
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

async function createFile(path: string): Promise<WriteStream> {
  const file = createWriteStream(path, { flags: 'wx' });
  await once(file, 'open');
  return file;
}

/** Returns the entry as the service sends it: its hash covers these names. */
function toLine({ seq, ts, sandboxId, event, data, hmac }: AuditEntry): string {
  return `${JSON.stringify({ seq, ts, sandbox_id: sandboxId, event, data, hmac })}\n`;
}
