/**
 * Measures the rate of the host's time stamp counter. An emulated guest reads the same counter; its kernel would otherwise
 * find the rate by polling an emulated timer, which fails on a busy host: the boot then waits for ticks that never come. So
 * the kernel gets the measured rate (`tsc_early_khz`).
 */
import { z } from 'zod';
import { runProcess } from './run-process.ts';

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64;

const Rate = z.string().trim().regex(/^\d+$/u).transform(Number).pipe(z.int().positive());

/** Returns ticks per millisecond. `program` is the path of hostctl. */
export async function measureTscKhz(program: string): Promise<number> {
  const answer = await runProcess({
    command: program,
    args: ['tsc'],
    timeoutMs: TIMEOUT_MS,
    maxStdoutBytes: MAX_ANSWER_BYTES,
  });
  return Rate.parse(answer.toString('latin1'));
}
