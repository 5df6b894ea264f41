import { join } from 'node:path';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const PACKAGES = join(REPOSITORY, 'packages');
const SERVER = join(PACKAGES, 'server', 'src');

/**
 * @param {string} name
 * @param {string} path  of its file
 * @param {...string} first  arguments before those that are given
 * @returns {[string, (args: string[]) => Promise<number>]}
 */
const command = (name, path, ...first) => [name, (args) => runTypeScript(name, path, [...first, ...args])];

/** Subcommands that are written in TypeScript: name, and what takes the arguments after it and gives the exit code. */
export const TYPESCRIPT_COMMANDS = [
  command('audit', join(PACKAGES, 'cli', 'src', 'audit-command.ts')),
  command('image', join(SERVER, 'commands', 'image-command.ts')),
  command('backup', join(SERVER, 'commands', 'backup-command.ts'), 'backup'),
  command('restore', join(SERVER, 'commands', 'backup-command.ts'), 'restore'),
  command('master-key', join(SERVER, 'commands', 'master-key-command.ts')),
  command('organization', join(SERVER, 'commands', 'organization-command.ts')),
];
