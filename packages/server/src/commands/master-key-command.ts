/** `coppice master-key rotate`, on the server itself. Started by packages/cli with the Node.js of the service. */
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
    `${isContinued ? 'An interrupted rotation is finished' : 'There is a new master key'}: ${values} secrets are sealed with it.`,
    `${previews} preview links are good no longer. The service can be started.`,
    ...(unreadable === 0
      ? []
      : [
          `${unreadable} secrets were sealed with a key that is not here, and cannot be read: store them again.`,
        ]),
    'Backups that were taken before hold the old key, which opens the secrets in them: keep them accordingly.',
  ].join('\n');
}

async function main(): Promise<void> {
  const [verb, ...rest] = process.argv.slice(2);
  if (verb !== 'rotate' || rest.length > 0)
    throw new UsageError('it is: coppice master-key rotate, without arguments');
  process.stdout.write(`${await rotate()}\n`);
}

await runCommand('coppice', main);
