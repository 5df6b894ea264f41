import { describeError } from './setup-error.mjs';

const SIGNAL_EXIT_CODES = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 };

const PARENT_CHECK_MS = 500;

/**
 * Emits SIGTERM when npm has been stopped. npm passes a signal to the shell of the script, and that shell exits without
 * passing it on, so a changed parent is the only sign.
 */
function watchNpm() {
  if (process.env['npm_lifecycle_event'] === undefined) return;
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    process.emit('SIGTERM', 'SIGTERM');
  }, PARENT_CHECK_MS);
  timer.unref();
}

/**
 * Runs a script's main function. Its result is the exit code; its error is printed with the remedy. A signal ends the
 * process through `exit`, so that the programs it started, in process groups of their own, are ended too.
 * @param {(args: string[]) => Promise<number>} main
 * @param {string} [usage] printed for `--help` and after an unknown option
 */
export async function runMain(main, usage) {
  for (const [signal, code] of Object.entries(SIGNAL_EXIT_CODES))
    process.on(signal, () => process.exit(code));
  watchNpm();
  const args = process.argv.slice(2);
  if (usage !== undefined && args.includes('--help')) {
    process.stdout.write(usage);
    return;
  }
  try {
    process.exitCode = await main(args);
  } catch (error) {
    process.stderr.write(`\nfailed: ${describeError(error)}\n`);
    if (usage !== undefined && isUsageError(error)) process.stderr.write(`\n${usage}`);
    process.exitCode = 1;
  }
}

/** @param {unknown} error */
function isUsageError(error) {
  return error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS_');
}
