/**
 * `coppice admin backup` and `coppice admin restore`, on the server itself. packages/cli starts it in the Node.js of
 * the service.
 */
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { runCommand, UsageError } from './command-line.ts';
import { loadConfig } from '../config/config.ts';
import { KeptBackup, NewBackup } from '../control/backup/backup-files.ts';
import { putBack } from '../control/backup/put-back.ts';
import { takeBackup } from '../control/backup/take-backup.ts';
import { createLog } from '../lib/log.ts';
import { becomeServiceAccount } from '../service-account.ts';

const KIBIBYTE = 1024;

async function backup(path: string): Promise<string> {
  const config = loadConfig();
  // Opened with the rights of the user who runs the command.
  using target = new NewBackup(path);
  becomeServiceAccount(config);
  const bytes = await takeBackup(config.control, target, createLog('backup', 'warn'));
  return [
    `${path} holds the database (${Math.ceil(bytes / KIBIBYTE)} KiB) and the master key that opens its secrets.`,
    'Keep the two apart where others can read the backup. It does not contain settings and flushed audit logs:',
    'docs/guides/backup.md says what else to keep.',
  ].join('\n');
}

async function restore(path: string): Promise<string> {
  const config = loadConfig();
  // Opened with the rights of the user who runs the command.
  using source = new KeptBackup(path);
  becomeServiceAccount(config);
  const { head, rows, hasKey } = await putBack(config.control, source, createLog('restore', 'warn'));
  return [
    `restored ${rows} rows, as of ${head.created_at}, taken by Coppice ${head.service}. The service can be started.`,
    ...(hasKey
      ? []
      : [
          `There is no master key: put it back as master.key in ${config.control.dataDir} before the start, or the`,
          'service cannot read stored secrets.',
        ]),
  ].join('\n');
}

async function main(): Promise<void> {
  const [verb, ...args] = process.argv.slice(2);
  const { positionals } = parseArgs({ args, options: {}, allowPositionals: true });
  const [path] = positionals;
  if (path === undefined || positionals.length !== 1) throw new UsageError('name one directory');
  const run = { backup, restore }[verb ?? ''];
  if (run === undefined) throw new UsageError(`unknown command "${verb ?? ''}": expected backup or restore`);
  process.stdout.write(`${await run(resolve(path))}\n`);
}

await runCommand('coppice admin', main);
