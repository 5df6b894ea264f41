/** `coppice admin master-key rotate`, on the server itself. packages/cli starts it in the Node.js of the service. */
import { runCommand, UsageError } from './command-line.ts';
import { loadConfig } from '../config/config.ts';
import { rotateMasterKey } from '../control/operator/rotate-master-key.ts';
import { armFaults } from '../lib/fault-directory.ts';
import { createLog } from '../lib/log.ts';
import { becomeServiceAccount } from '../service-account.ts';

async function rotate(): Promise<string> {
  const config = loadConfig();
  armFaults(config.faultDir);
  becomeServiceAccount(config);
  const { values, unreadable, previews, isContinued } = await rotateMasterKey(
    config.control,
    createLog('master-key', 'warn'),
  );
  return [
    `${isContinued ? 'Finished an interrupted rotation' : 'Made a new master key'}: ${values} secrets are sealed with it.`,
    `${previews} preview links are no longer valid. The service can be started.`,
    ...(unreadable === 0
      ? []
      : [
          `${unreadable} secrets cannot be read, because their key is not on this machine: store them again.`,
        ]),
    'Earlier backups contain the old key, which opens the secrets in them: protect them accordingly.',
  ].join('\n');
}

async function main(): Promise<void> {
  const [verb, ...rest] = process.argv.slice(2);
  if (verb !== 'rotate' || rest.length > 0)
    throw new UsageError('expected: coppice admin master-key rotate, without arguments');
  process.stdout.write(`${await rotate()}\n`);
}

await runCommand('coppice admin', main);
