import { join } from 'node:path';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const PACKAGES = join(REPOSITORY, 'packages');
const SERVER = join(PACKAGES, 'server', 'src');

/**
 * @param {string} name
 * @param {string} path  of its file
 * @param {...string} first  arguments to put before those of the caller
 * @returns {[string, (args: string[]) => Promise<number>]}
 */
const command = (name, path, ...first) => [name, (args) => runTypeScript(name, path, [...first, ...args])];

/** Subcommands written in TypeScript: a name, and a function that takes the arguments and returns the exit code. */
export const TYPESCRIPT_COMMANDS = [
  command('audit', join(PACKAGES, 'cli', 'src', 'audit-command.ts')),
  command('image', join(SERVER, 'commands', 'image-command.ts')),
  command('backup', join(SERVER, 'commands', 'backup-command.ts'), 'backup'),
  command('restore', join(SERVER, 'commands', 'backup-command.ts'), 'restore'),
  command('master-key', join(SERVER, 'commands', 'master-key-command.ts')),
  command('organization', join(SERVER, 'commands', 'organization-command.ts')),
];
