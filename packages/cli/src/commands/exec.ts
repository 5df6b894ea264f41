import type { Command } from 'commander';
import { runAttached } from '../attach/attached-command.ts';
import { toCommandLine } from '../attach/command-line.ts';
import { action, addCommand, addGuestCommand, first } from '../calls/command-call.ts';
import { addExecOptions, toAttachedOptions, type ExecOptions } from '../calls/exec-options.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

export function addExec(program: Command): void {
  const command = addCommand(program, {
    syntax: 'exec <sandbox>',
    summary: 'runs a command in a sandbox and shows its output',
    details:
      'Standard input is passed to the command unless it is a terminal. The exit code is that of the command: 124 after ' +
      'its time limit, 128 + n after signal n. 125 means that coppice itself failed; a message then says why. Ctrl-C ' +
      'interrupts the command, a second Ctrl-C kills it. Input and output are text in UTF-8: copy other files with cp.',
    examples: [
      'coppice exec run0123 -- python3 -c "print(6 * 7)"',
      "coppice exec run0123 -- 'ls /workspace | wc -l'",
      'coppice exec run0123 -- psql app < dump.sql',
      'coppice exec -e NPM_TOKEN run0123 -- npm publish   # the value of your own NPM_TOKEN',
    ],
  });
  addGuestCommand(command, '<command...>');
  addExecOptions(command).action(
    action<ExecOptions>(async (call) => {
      const sandbox = await findSandbox(call.connect(), first(call));
      const line = toCommandLine(call.operands.slice(1));
      return runAttached(sandbox, line, { options: toAttachedOptions(call.options), out: call.out });
    }),
  );
}
