import { CommanderError, type Command } from 'commander';
import { readProfiles } from './profiles/profile-file.ts';
import { toAttachedCode } from './attach/attached-command.ts';
import { Ended, isGuarded } from './attach/signals.ts';
import { describeFailure, EXIT, isUsage } from './output/failure.ts';
import { flush } from './output/output.ts';
import { buildProgram } from './program.ts';

/** Commands that pass on the exit code of a command in the guest. */
const ATTACHED = new Set(['exec', 'run', 'shell', 'ssh', 'wait']);

/** Runs the command line of a user. Returns the exit code when all output is written. */
export async function main(args: readonly string[], version: string): Promise<number> {
  endQuietly(process.stdout);
  endQuietly(process.stderr);
  const code = await runProgram(args, version);
  await Promise.all([flush(process.stdout), flush(process.stderr)]);
  return code;
}

async function runProgram(args: readonly string[], version: string): Promise<number> {
  if (process.platform === 'win32') {
    process.stderr.write(
      'coppice: Windows is not supported: run coppice in WSL, the Windows Subsystem for Linux\n',
    );
    return EXIT.failed;
  }
  let last: Command | undefined;
  const note = (_: Command, command: Command): void => {
    last = command.hook('preSubcommand', note);
  };
  try {
    if (args.length === 0) return explain(buildProgram(version));
    await buildProgram(version).hook('preSubcommand', note).parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    return report(error, last);
  }
}

/** Prints the error, and returns its exit code. `command` is the one that was called, if the parser got so far. */
function report(error: unknown, command: Command | undefined): number {
  const isAttached = command !== undefined && ATTACHED.has(command.name());
  if (error instanceof CommanderError) {
    // The parser has printed its message, or the help that was asked for.
    if (error.exitCode === 0) return 0;
    process.stderr.write(`run "coppice ${nameOf(command)}--help" for help\n`);
    return isAttached ? EXIT.attached : EXIT.usage;
  }
  if (!(error instanceof Ended)) process.stderr.write(`coppice: ${describeFailure(error)}\n`);
  if (isAttached || error instanceof Ended) return toAttachedCode(error);
  return isUsage(error) ? EXIT.usage : EXIT.failed;
}

/** Returns the names by which a command is called, and a space. */
function nameOf(command: Command | undefined): string {
  if (command === undefined || command.parent === null) return '';
  return `${nameOf(command.parent)}${command.name()} `;
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

/** Ends the process when the reader of its output has left, as `head` does. Guarded work first undoes what it did. */
function endQuietly(stream: NodeJS.WriteStream): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (isGuarded()) return;
    process.exit(error.code === 'EPIPE' ? EXIT.brokenPipe : EXIT.failed);
  });
}
