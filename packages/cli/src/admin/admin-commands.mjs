import { join } from 'node:path';
import { REPOSITORY } from '../../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const COMMANDS = join(REPOSITORY, 'packages', 'server', 'src', 'commands');

/**
 * @param {string} name
 * @param {string} file
 * @param {...string} first  arguments to put before those of the caller
 * @returns {[string, (args: string[]) => Promise<number>]}
 */
const command = (name, file, ...first) => [
  name,
  (args) => runTypeScript(`admin ${name}`, join(COMMANDS, file), [...first, ...args]),
];

/** The commands of the service: a name, and a function that takes the arguments and returns the exit code. */
export const ADMIN_COMMANDS = [
  command('image', 'image-command.ts'),
  command('backup', 'backup-command.ts', 'backup'),
  command('restore', 'backup-command.ts', 'restore'),
  command('master-key', 'master-key-command.ts'),
  command('organization', 'organization-command.ts'),
  command('runner', 'runner-command.ts'),
  command('control', 'control-command.ts'),
];
