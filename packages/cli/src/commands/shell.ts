import type { Command } from 'commander';
import { runInTerminal } from '../attach/attached-terminal.ts';
import { toCommandLine } from '../attach/command-line.ts';
import { action, addCommand, addGuestCommand, first } from '../calls/command-call.ts';
import { addDirectoryAndUser, type ExecOptions } from '../calls/exec-options.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

export function addShell(program: Command): void {
  const command = addCommand(program, {
    syntax: 'shell <sandbox>',
    alias: 'terminal',
    summary: 'opens a terminal in a sandbox',
    details:
      'Runs an interactive bash, or sh if the image has no bash, or the given command. The exit code is that of the ' +
      'program; 125 means that coppice itself failed.',
    examples: ['coppice shell run0123', 'coppice shell run0123 -- htop'],
  });
  addGuestCommand(command, '[command...]');
  addDirectoryAndUser(command).action(
    action<Pick<ExecOptions, 'cwd' | 'user'>>(async (call) => {
      const words = call.operands.slice(1);
      const { cwd, user } = call.options;
      const sandbox = await findSandbox(call.connect(), first(call));
      return runInTerminal(sandbox, {
        command: words.length === 0 ? undefined : toCommandLine(words),
        cwd,
        user,
      });
    }),
  );
}
