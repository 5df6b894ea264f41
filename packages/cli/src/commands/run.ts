import type { Command } from 'commander';
import { runAttached } from '../attach/attached-command.ts';
import { toCommandLine } from '../attach/command-line.ts';
import { Ended, withSignals } from '../attach/signals.ts';
import type { Coppice, Sandbox } from '../../../sdk/src/index.ts';
import { action, addCommand, first, guestCommand } from '../calls/command-call.ts';
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
  }).addArgument(guestCommand());
  addExecOptions(addSandboxOptions(command))
    .option('--keep', 'does not destroy the sandbox, and prints its id on standard error')
    .action(
      action<RunOptions>(async (call) => {
        const { options, out } = call;
        const sandbox = await out.during(
          'creating the sandbox …',
          createOrEnd(call.connect(), first(call), options),
        );
        try {
          if (options.keep === true) out.note(sandbox.id);
          const line = toCommandLine(call.operands.slice(1));
          return await runAttached(sandbox, line, { options: toAttachedOptions(options), out });
        } finally {
          if (options.keep !== true) await destroy(sandbox);
        }
      }),
    );
}

/** Destroys the sandbox, also when a signal arrives meanwhile. Only a second Ctrl-C leaves it to its idle timeout. */
async function destroy(sandbox: Sandbox): Promise<void> {
  const onInterrupt = (count: number): void => {
    if (count > 1) process.exit(new Ended('SIGINT').exitCode);
  };
  await withSignals({ onInterrupt, onEnd: () => undefined }, () => sandbox[Symbol.asyncDispose]());
}

/**
 * Creates the sandbox. After a signal it waits for the end of the create, to destroy the sandbox: a second Ctrl-C does not
 * wait.
 */
async function createOrEnd(client: Coppice, image: string, options: SandboxOptions): Promise<Sandbox> {
  let reason: Ended | undefined;
  const onEnd = (ended: Ended): void => void (reason ??= ended);
  const onInterrupt = (count: number): void => {
    onEnd(new Ended('SIGINT'));
    if (count > 1) process.exit(reason?.exitCode);
  };
  const sandbox = await withSignals({ onInterrupt, onEnd }, () =>
    client.sandboxes.create(toCreateOptions(image, options)),
  );
  if (reason === undefined) return sandbox;
  await destroy(sandbox);
  throw reason;
}
