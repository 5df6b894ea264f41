import type { Command } from 'commander';
import { runAttached } from '../attach/attached-command.ts';
import { toCommandLine } from '../attach/command-line.ts';
import { abortOnSignal, withSignals } from '../attach/signals.ts';
import type { Sandbox } from '../../../sdk/src/index.ts';
import { action, addCommand, addGuestCommand, first } from '../calls/command-call.ts';
import { addExecOptions, toAttachedOptions, type ExecOptions } from '../calls/exec-options.ts';
import { addSandboxOptions, toCreateOptions, type SandboxOptions } from '../calls/sandbox-options.ts';

type RunOptions = SandboxOptions & ExecOptions & { keep?: boolean };

export function addRun(program: Command): void {
  const command = addCommand(program, {
    syntax: 'run <image>',
    summary: 'creates a sandbox, runs a command in it, and destroys it',
    details:
      'The command is run as "coppice exec" runs it, with its exit code. The sandbox is destroyed when the command has ' +
      'ended, also after Ctrl-C.',
    examples: [
      'coppice run coppice/base:1 -- node --version',
      'coppice run --mem 2g --allow pypi.org --allow files.pythonhosted.org python:3.12-slim -- pip download numpy',
    ],
  });
  addGuestCommand(command, '<command...>');
  addExecOptions(addSandboxOptions(command))
    .option('--keep', 'does not destroy the sandbox, and prints its id on standard error')
    .action(
      action<RunOptions>(async (call) => {
        const { options, out } = call;
        const { keep } = options;
        const created = () =>
          out.during(
            'creating the sandbox …',
            call.connect().sandboxes.create(toCreateOptions(first(call), options)),
          );
        return inSandbox(created, { keep: keep === true }, (sandbox) => {
          if (keep === true) out.note(sandbox.id);
          const line = toCommandLine(call.operands.slice(1));
          return runAttached(sandbox, line, { options: toAttachedOptions(options), out });
        });
      }),
    );
}

/**
 * Works in a new sandbox and destroys it, also after a signal at any time: after one during the create it waits for the
 * sandbox. Only a second Ctrl-C leaves the sandbox to its idle timeout.
 */
async function inSandbox(
  create: () => Promise<Sandbox>,
  { keep }: { keep: boolean },
  work: (sandbox: Sandbox) => Promise<number>,
): Promise<number> {
  const ending = new AbortController();
  return withSignals(abortOnSignal(ending), async () => {
    const sandbox = await create();
    // Its id is not known to the user yet.
    const isKept = keep && !ending.signal.aborted;
    try {
      ending.signal.throwIfAborted();
      return await work(sandbox);
    } finally {
      if (!isKept) await sandbox[Symbol.asyncDispose]();
    }
  });
}
