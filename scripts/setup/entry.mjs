import { describeError } from './setup-error.mjs';

const SIGNAL_EXIT_CODES = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 };

/**
 * Runs a script's main function: its result is the exit code, its error is printed with the remedy. A signal
 * ends the process by way of `exit`, so that the programs it started (groups of their own) are ended too.
 * @param {(args: string[]) => Promise<number>} main
 */
export async function runMain(main) {
  for (const [signal, code] of Object.entries(SIGNAL_EXIT_CODES))
    process.on(signal, () => process.exit(code));
  try {
    process.exitCode = await main(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`\nfailed: ${describeError(error)}\n`);
    process.exitCode = 1;
  }
}
