import type { Sandbox, Terminal } from '../../../sdk/src/index.ts';
import { UsageError } from '../output/failure.ts';
import { write } from '../output/output.ts';
import { Ended, withSignals } from './signals.ts';

const MAX_SIDE = 1000;
const DEFAULT_SIZE = { cols: 80, rows: 24 };
/**
 * Leaves the alternate screen and turns off mouse reports and bracketed paste, shows the cursor and ends colours: a program
 * that lost its connection could not.
 */
const RESET_MODES =
  '\u001b[?1049l\u001b[?1000l\u001b[?1002l\u001b[?1003l\u001b[?1006l\u001b[?2004l\u001b[?25h\u001b[0m';

export interface TerminalProgram {
  command: string | undefined;
  cwd: string | undefined;
  user: string | undefined;
}

/** Connects this terminal to a program in the sandbox, and returns the exit code of the program. */
export async function runInTerminal(sandbox: Sandbox, program: TerminalProgram): Promise<number> {
  const { stdin, stdout } = process;
  if (!stdin.isTTY || !stdout.isTTY)
    throw new UsageError('this needs a terminal: use "coppice exec" for commands without one');
  const terminal = await sandbox.terminal({ ...program, ...readSize() });
  const restore = enterRawMode();
  const resize = (): void => {
    const { cols, rows } = readSize();
    terminal.resize(cols, rows);
  };
  stdout.on('resize', resize);
  let reason: Ended | undefined;
  const end = (ended: Ended): void => {
    reason ??= ended;
    void terminal.close();
  };
  try {
    // In raw mode Ctrl-C is a byte like any other; a SIGINT comes from another process.
    return await withSignals({ onInterrupt: () => end(new Ended('SIGINT')), onEnd: end }, () =>
      relay(terminal),
    );
  } catch (error) {
    stdout.write(`${RESET_MODES}\r\n`);
    throw reason ?? error;
  } finally {
    stdout.off('resize', resize);
    restore();
    await terminal.close();
  }
}

async function relay(terminal: Terminal): Promise<number> {
  // Input is lost once the program has ended; its exit code says how it ended.
  pumpInput(terminal).catch(() => undefined);
  for await (const bytes of terminal) await write(process.stdout, bytes);
  return (await terminal.wait()).exitCode;
}

async function pumpInput(terminal: Terminal): Promise<void> {
  for await (const keys of process.stdin) await terminal.write(keys as Uint8Array);
}

/** Sets raw mode. Returns a function that ends it, which is also called when the process exits in any way. */
function enterRawMode(): () => void {
  const { stdin } = process;
  stdin.setRawMode(true);
  const restore = (): void => {
    process.off('exit', restore);
    stdin.setRawMode(false);
    stdin.pause();
  };
  process.on('exit', restore);
  return restore;
}

function readSize(): { cols: number; rows: number } {
  const { columns, rows } = process.stdout;
  return { cols: clamp(columns, DEFAULT_SIZE.cols), rows: clamp(rows, DEFAULT_SIZE.rows) };
}

/** Some terminals report 0 when they do not know their size. */
function clamp(side: number | undefined, unknown: number): number {
  return side === undefined || side < 1 ? unknown : Math.min(side, MAX_SIDE);
}
