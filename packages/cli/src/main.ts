import { CommanderError, type Command } from 'commander';
import { readProfiles } from './profiles/profile-file.ts';
import { toAttachedCode } from './attach/attached-command.ts';
import { Ended } from './attach/signals.ts';
import { describeFailure, EXIT, isUsage } from './failure.ts';
import { buildProgram } from './program.ts';

/** Commands that pass on the exit code of a command in the guest. */
const ATTACHED = new Set(['exec', 'run', 'shell', 'wait']);

/** Runs the command line of a user and returns the exit code. */
export async function main(args: readonly string[], version: string): Promise<number> {
  endQuietly(process.stdout);
  endQuietly(process.stderr);
  let isAttached = false;
  const note = (_: Command, command: Command): void => {
    isAttached ||= ATTACHED.has(command.name());
    command.hook('preSubcommand', note);
  };
  try {
    if (args.length === 0) return explain(buildProgram(version));
    await buildProgram(version).hook('preSubcommand', note).parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    return report(error, isAttached);
  }
}

function report(error: unknown, isAttached: boolean): number {
  if (error instanceof CommanderError) {
    // The parser has printed its message.
    if (error.exitCode === 0) return 0;
    return isAttached ? EXIT.attached : EXIT.usage;
  }
  if (!(error instanceof Ended)) process.stderr.write(`coppice: ${describeFailure(error)}\n`);
  if (isAttached || error instanceof Ended) return toAttachedCode(error);
  return isUsage(error) ? EXIT.usage : EXIT.failed;
}

/** Prints the first step while there is no service to use, and the help otherwise. */
function explain(program: Command): number {
  const isNew = (process.env['SANDBOX_API_KEY'] ?? '') === '' && readProfiles().profiles.size === 0;
  if (!isNew) {
    program.outputHelp();
    return 0;
  }
  process.stderr.write(
    'coppice: run "coppice login" to store the API key of your service; "coppice help" lists all commands\n',
  );
  return EXIT.usage;
}

/** Ends the process when the reader of its output has left, as `| head` does. */
function endQuietly(stream: NodeJS.WriteStream): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    process.exit(error.code === 'EPIPE' ? EXIT.brokenPipe : EXIT.failed);
  });
}
